"""How long it takes to learn from the reference studies, and to write a page of a study."""

from __future__ import annotations

import lzma
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

import tuner
from tests.benchmarks.figures import Figure

REFERENCE = Path(__file__).parents[2] / "results" / "reference.db.xz"
N_TRIALS = 200


def figures() -> Iterator[Figure]:
    """Yield the figures; both on all studies that are shipped."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "reference.db"
        database.write_bytes(lzma.decompress(REFERENCE.read_bytes()))
        began = time.monotonic()
        n_studies = tuner.learn_rules(database).rule_set.provenance.n_studies
        took_s = time.monotonic() - began
        yield Figure(f"rules of {n_studies} studies", f"{took_s:.1f} s", "at most 10 s", took_s <= 10)
        largest = max(tuner.list_studies(database), key=lambda line: line.trials)
        result = tuner.load_study(largest.study, database).result
    history = tuple(structs.replace(result.history[i % len(result.history)], number=i) for i in range(N_TRIALS))
    study = tuner.Study(structs.replace(result, history=history))
    began = time.monotonic()
    page = study.report()
    took_s = time.monotonic() - began
    size = len(page.encode())
    yield Figure(f"a page of {N_TRIALS} trials", f"{took_s:.1f} s", "at most 3 s", took_s <= 3)
    yield Figure("its size", f"{size / 1e6:.2f} MB", "below 1 MB", size < 1_000_000)
