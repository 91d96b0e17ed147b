"""Memory that a container limits, for real: batch sizes that do not fit, and room for one process at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import wait_until

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 1536 << 20
HUNGRY = """
import numpy as np
import tensorflow as tf

DESCRIPTION = "each item takes 128 MiB for a moment"
BATCH_SIZE = 1


def build():
    weights = tf.Variable(tf.random.stateless_normal((256, 256), seed=(0, 1)))

    def step(x):
        wide = tf.reshape(x, (-1, 1, 256)) * tf.random.stateless_normal((1, 16384, 256), seed=(0, 1))
        return tf.reduce_sum(wide, 1) @ weights

    return step


def inputs(batch_size):
    return (np.ones((batch_size, 256), "float32"),)
"""

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not os.access(GROUPS, os.W_OK), reason="needs the right to make a memory cgroup (v1)"),
]


@pytest.fixture
def group() -> Iterator[Path]:
    """A group whose processes may hold 1.5 GiB together, and no swap."""
    folder = GROUPS / f"tftune-test-{os.getpid()}"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    swap = folder / "memory.memsw.limit_in_bytes"
    if swap.exists():
        swap.write_text(str(LIMIT_BYTES))
    yield folder
    assert wait_until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_a_batch_size_that_memory_does_not_hold_ends_its_trial_and_not_the_search(group: Path, tmp_path: Path) -> None:
    (tmp_path / "hungry.py").write_text(HUNGRY)
    # Counted in trials: a time budget may be too short on a busy machine. The finals end once they show a tie.
    search = subprocess.run(
        [
            str(Path(sys.executable).with_name("tftune")), "search", "./hungry.py", "--batch-size", "1,64",
            "--set", "inter_op=1", "--set", "intra_op=2", "--one-process", "--trials", "3", "--margin", "50", "--json",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
    )  # fmt: skip
    assert search.returncode == 0, search.stderr
    document = json.loads(search.stdout)
    statuses = {
        batch: {row["status"] for row in document["history"] if row["setting"]["batch_size"] == batch}
        for batch in (1, 64)
    }
    assert statuses[1] == {"ok"}
    assert statuses[64] == {"oom"}
    assert document["recommended"]["setting"]["batch_size"] == 1
    assert document["verdicts"]
