"""How long does a search take until it has proven what there is to gain, and how much does it know in the end?

    python -m tests.benchmarks.proofs                                ten of each job, more than an hour
    python -m tests.benchmarks.proofs --n 3 ncf                      three of one job
    python -m tests.benchmarks.proofs --tftune OTHER/bin/tftune      by another version, for comparison

Nothing else may run meanwhile. Each job begins a new study; exports and probes are cached by a first run that does not
count. A job is proven when it tells so, or else at its end if its verdict is better.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Figure

TFTUNE = str(Path(sys.executable).with_name("tftune"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A search, and what it has to show: a gain of several processes above `least`, within `within_s` (s)."""

    words: Sequence[str]
    least: float
    within_s: float


JOBS = {
    "mobilenetv2": Job(words=("mobilenetv2", "--batch-size", "1", "--time-budget", "60s"), least=1.5, within_s=45),
    "ncf": Job(words=("ncf", "--time-budget", "60s"), least=1.0, within_s=45),
    "resnet50": Job(words=("resnet50",), least=1.0, within_s=180),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One search: when several processes were proven (s), how long it took (s), and its document."""

    proven_s: float
    wall_s: float
    document: dict[str, Any]

    def width(self, question: str) -> float:
        """Return half the width of the interval against the default, as a share; infinite without one."""
        verdict = self.verdict(question)
        if verdict is None or not verdict["low"]:
            return math.inf
        return math.sqrt(verdict["high"] / verdict["low"]) - 1

    def verdict(self, question: str) -> dict[str, Any] | None:
        """Return what was found of `one` process or of `several`, against the default."""
        of = self.document if question == "one" else self.document["groups"]
        return None if of is None else of["verdicts"].get("tf-default")


def ran(tftune: str, job: Job, folder: str) -> Ran:
    """Run a search in a folder, and read when it tells what."""
    began = time.monotonic()
    command = [tftune, "search", *job.words, "--new", "--wait", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    proven_s = math.inf
    for line in process.stderr:
        if "proven so far" in line:
            proven_s = min(proven_s, time.monotonic() - began)
    document = json.load(process.stdout)
    process.wait()
    wall_s = time.monotonic() - began
    done = Ran(proven_s=proven_s, wall_s=wall_s, document=document)
    verdict = done.verdict("several")
    is_shown = verdict is not None and verdict["verdict"] == "better" and verdict["low"] > job.least
    return Ran(proven_s=min(proven_s, wall_s) if is_shown else math.inf, wall_s=wall_s, document=document)


def figures(tftune: str = TFTUNE, names: Sequence[str] = tuple(JOBS), n: int = 10) -> Iterator[Figure]:
    """Run each job n times."""
    for name in names:
        job = JOBS[name]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [tftune, "search", job.words[0], "--time-budget", "30s", "--wait"],
                cwd=folder,
                check=False,
                capture_output=True,
            )
            all_ran = []
            for _ in range(n):
                all_ran.append(ran(tftune, job, folder))
                print(name, *_line(all_ran[-1]), sep="; ", file=sys.stderr, flush=True)
        in_time = sum(each.proven_s <= job.within_s for each in all_ran)
        median_s = statistics.median(each.proven_s for each in all_ran)
        yield Figure(
            f"{' '.join(job.words)}: several processes are proven (median; within {job.within_s:g} s)",
            f"{'not' if math.isinf(median_s) else f'{median_s:.0f} s'}; {in_time} of {n}",
            f"{math.ceil(0.9 * n)} of {n} within {job.within_s:g} s",
            in_time >= 0.9 * n,
        )
        settings = statistics.median(len(each.document["history"]) for each in all_ran)
        decided = [
            sum(v is not None and v["verdict"] != "undecided" for v in (each.verdict("one"), each.verdict("several")))
            for each in all_ran
        ]
        widths = [statistics.median(each.width(question) for each in all_ran) for question in ("one", "several")]
        text = " and ".join("no interval" if math.isinf(width) else f"±{100 * width:.1f} %" for width in widths)
        is_default = len(job.words) == 1
        yield Figure(
            f"{' '.join(job.words)}: settings; intervals of one process and of several (medians); questions decided",
            f"{settings:.0f}; {text}; {sum(decided)} of {2 * n}",
            "at least 30; at most ±3 %" if is_default else "",
            not is_default or (settings >= 30 and max(widths) <= 0.03),
        )


def _line(each: Ran) -> Iterator[str]:
    yield f"{each.wall_s:.0f} s, proven after {each.proven_s:.0f} s, {len(each.document['history'])} settings"
    for question in ("one", "several"):
        verdict = each.verdict(question)
        if verdict is not None:
            ends = "" if verdict["low"] is None else f" [{verdict['low']:.2f}, {verdict['high']:.2f}]"
            yield f"{question}: {verdict['verdict']}{ends}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tftune", default=TFTUNE)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("jobs", nargs="*", default=list(JOBS))
    options = parser.parse_args()
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for figure in figures(options.tftune, options.jobs, options.n):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
