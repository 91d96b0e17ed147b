"""Kill a search at random moments with SIGKILL, and look at what is left: processes, trials, the next run.

    python -m tests.benchmarks.kills [N [KIND...]]    of each of two kinds, 100 if not given: half an hour in all

A model's trials are forks of a server, a command's are runs of it. Each search goes on with the study of the one
before, so that many are killed in the finals.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.processes import wait_until
from tuner.study.record import Record
from tuner.study.storage import all_records, open_storage

TFTUNE = str(Path(sys.executable).with_name("tftune"))
MARK = "TFTUNE_KILLED"
GONE_S = 10.0  # within which all that a killed search has started is to be gone
SEED = 20260
_EACH = 10  # kills of a study: one that is finished has nothing but its finals to kill
PROGRAM = 'n=$(( ${OMP_NUM_THREADS:-8} )); sleep 0.0$n; echo "rate: $(( 100 / n ))"'
SEARCHES = {
    "model": (["lenet5", "--time-budget", "15s"], 30.0),
    "command": (
        ["--framework", "command", "--metric-regex", r"rate: (\S+)", "--time-budget", "8s", "--name", "program"],
        10.0,
    ),
}
"""By what is searched: the options, and about how long a whole search takes (s)."""


def marked(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    return pids


def measured(storage: str) -> dict[str, int]:
    """Return how many trials and finals are stored, in all studies."""
    opened = open_storage(storage, create=False)
    records: Sequence[Record] = [] if opened is None else all_records(opened)
    return {
        "trials": sum(len(record.trials()) for record in records),
        "finals": sum(record.get("finals") is not None for record in records),
    }


def kill(options: Sequence[str], words: Sequence[str], folder: Path, after_s: float, mark: str) -> dict[str, bool]:
    """Start a search, kill it after a while, and return what came of it, by what it is called."""
    storage = f"sqlite:///{folder}/kills.db"
    before = measured(storage)
    search = subprocess.Popen(
        [TFTUNE, "search", *options, "--storage", storage, *words],
        cwd=folder,
        env=os.environ | {MARK: mark, "TFTUNE_CACHE": f"{folder}/cache"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, stderr = search.communicate(timeout=after_s)
        ended = True
    except subprocess.TimeoutExpired:
        search.kill()
        _, stderr = search.communicate()
        ended = False
    are_gone = wait_until(lambda: not marked(mark), GONE_S)
    after = measured(storage)
    return {
        "ended before": ended,
        "failed by itself": ended and search.returncode != 0,
        "in the finals": not ended and "finals:" in stderr,
        "left a process": not are_gone,
        "lost a trial": after["trials"] < before["trials"],
        "lost its finals": after["finals"] < before["finals"],
    }


def main(n: int, kinds: Sequence[str]) -> None:
    """Kill searches of some kinds, and print the counts."""
    rng = random.Random(SEED)
    for name in kinds:
        options, whole_s = SEARCHES[name]
        counts: Counter[str] = Counter()
        words = ["--", "sh", "-c", PROGRAM] if name == "command" else []
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            for number in range(n):
                seen = kill(options, words, folder, rng.uniform(0.1, whole_s), mark := f"{os.getpid()}-{number}")
                counts.update(key for key, is_so in seen.items() if is_so)
                if seen["left a process"]:
                    print(f"{mark}: {marked(mark)} are left", file=sys.stderr)
                if number % _EACH == _EACH - 1 and number < n - 1:
                    (folder / "kills.db").unlink(missing_ok=True)
                print(f"{name} {number + 1}: {', '.join(key for key, is_so in seen.items() if is_so)}", file=sys.stderr)
            storage = f"sqlite:///{folder}/kills.db"
            whole = subprocess.run(
                [TFTUNE, "search", *options, "--json", "--storage", storage, *words],
                cwd=folder,
                env=os.environ | {"TFTUNE_CACHE": f"{folder}/cache"},
                capture_output=True,
                text=True,
                check=False,
            )
            verdicts = json.loads(whole.stdout)["verdicts"] if whole.returncode == 0 else None
            parts = list((folder / "cache").rglob(".part-*"))
        print(f"{name}: killed {n - counts['ended before']} of {n}, {counts['in the finals']} of them in the finals")
        for what in ("failed by itself", "left a process", "lost a trial", "lost its finals"):
            print(f"    {what}: {counts[what]}")
        print(f"    the next search ended with code {whole.returncode}, {'with' if verdicts else 'without'} a verdict")
        print(f"    parts of exports left behind: {len(parts)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2:] or list(SEARCHES))
