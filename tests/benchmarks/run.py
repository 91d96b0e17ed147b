"""Measure what the README promises of a search, and print it as the README's table.

    python -m tests.benchmarks.run            everything, about four hours
    python -m tests.benchmarks.run pair help  only these parts

Nothing else may run meanwhile. The OpenMP build is taken from .openmp, or TFTUNE_OPENMP_PYTHON. A miss of a target is
printed as one, with its figure.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks import (
    bytime,
    capacity,
    launchers,
    misfits,
    predictions,
    priors,
    proofs,
    replication,
    reports,
    rounds,
    rules,
    searchers,
    serving,
    simulation,
    workloads,
)
from tests.benchmarks.figures import Figure, job_on
from tuner.machine.host import detect
from tuner.machine.locks import machine_lock
from tuner.measure.objective import Objective
from tuner.measure.pair import log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.stats.estimate import estimate, unpaired
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import start_together

TFTUNE = str(Path(sys.executable).with_name("tftune"))
RULES = Path(__file__).parents[1] / "data" / "rules" / "rules.json"
N_PAIRS = 5
N_COMPARES = 20


def search() -> Iterator[Figure]:
    """The whole default job as a new user has it: no probe, no export and no study yet."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TFTUNE_CACHE": f"{folder}/cache"}
        began = time.monotonic()
        first_row_s = math.inf
        process = subprocess.Popen(
            [TFTUNE, "search", "resnet50", "--json"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if re.match(r"\d+ ", line) and first_row_s == math.inf:
                first_row_s = time.monotonic() - began
        document = json.load(process.stdout)
        process.wait()
        wall_s = time.monotonic() - began
    counted = document["trials"]
    trials = (
        f"{counted['ok']} trials ok, {counted['pruned']} cut short, {document['finals']['rounds']} rounds of finals"
    )
    share = document["search_timed_share"]
    yield Figure(f"the whole default job ({trials})", f"{wall_s:.0f} s", "at most 300 s", wall_s <= 300)
    yield Figure(
        "first baseline row on the screen, nothing cached", f"{first_row_s:.0f} s", "at most 45 s", first_row_s <= 45
    )
    yield Figure("share of the search inside timed slices", f"{100 * share:.0f} %", "at least 80 %", share >= 0.8)


def pair() -> Iterator[Figure]:
    """A against A, both TensorFlow's default, in fresh processes each time."""
    job, target = job_on(sys.executable)
    launcher = FreshLauncher(target=target)
    default = (job.space.reference, job.space.deployment(job.space.reference))
    rows, cpu_s, timed_s = [], 0.0, 0.0
    with machine_lock():
        for _ in range(N_PAIRS):
            started = start_together(launcher, [default, default], parallel=2)
            a, b = (Live(process=each.process, usual_s=[each.facts.step_s]) for each in started)
            cpu_before = time.process_time()
            pair = run_pair(
                a, b, enough=lambda p: p.timed_s * (1 + 1.1 / p.n_blocks) > 25.0, min_passes=2, max_passes=99
            )
            cpu_s += time.process_time() - cpu_before
            timed_s += pair.timed_s
            a.process.close()
            b.process.close()
            rows.append((pair, *_figures(pair, default[0].batch_size)))
    for pair, paired, unpaired_estimate in rows:
        low, high = (100 * (edge - 1) for edge in paired.interval())
        print(
            f"A against A: {100 * (paired.ratio - 1):+.2f} % [{low:+.2f}, {high:+.2f}], se {100 * paired.se:.2f} %, "
            f"in {pair.timed_s:.0f} s of slices; unpaired se {100 * unpaired_estimate.se:.2f} %",
            file=sys.stderr,
        )
    worst = max(rows, key=lambda row: abs(row[1].mean))
    noisiest = max(rows, key=lambda row: row[1].se)
    longest = max(row[0].timed_s for row in rows)
    median_se = statistics.median(row[1].se for row in rows)
    median_apart = statistics.median(row[2].se for row in rows)
    bias, se, load_share = abs(worst[1].ratio - 1), noisiest[1].se, cpu_s / timed_s
    yield Figure(
        f"A against A, mean ratio, worst of {N_PAIRS}", f"{worst[1].ratio:.4f}", "within 1 % of 1", bias <= 0.01
    )
    yield Figure(f"its standard error, worst of {N_PAIRS}", f"{100 * se:.2f} %", "at most 1 %", se <= 0.01)
    yield Figure("time in slices for that", f"{longest:.0f} s", "at most 25 s", longest <= 25)
    yield Figure(
        "its standard error, median, beside the unpaired one of the same slices",
        f"{100 * median_se:.2f} % and {100 * median_apart:.2f} %",
        "",
        True,
    )
    yield Figure(
        "CPU time of the parent while slices are timed",
        f"{100 * load_share:.2f} % of a core",
        "at most 3 %",
        load_share <= 0.03,
    )


def _figures(made: object, batch_size: int) -> tuple:
    a = [Objective.THROUGHPUT.log_rate(s, batch_size) for s in made.reference]
    b = [Objective.THROUGHPUT.log_rate(s, batch_size) for s in made.candidate]
    return estimate(log_ratios(made, Objective.THROUGHPUT, batch_sizes=(batch_size, batch_size))), unpaired(a, b)


def compare() -> Iterator[Figure]:
    """`tftune compare` of a setting with itself, as a user runs it."""
    words = []
    for _ in range(N_COMPARES):
        command = [TFTUNE, "compare", "resnet50", "--a", "tf-default", "--b", "tf-default", "--time-budget", "70s"]
        done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        document = json.loads(done.stdout)
        words.append(document["verdict"])
        figure = "nothing" if document["speedup"] is None else f"{document['low']:.4f} to {document['high']:.4f}"
        print(f"compare: {document['verdict']}, {figure}, {document['rounds']} rounds", file=sys.stderr, flush=True)
    wrong = sum(word in ("better", "worse") for word in words)
    expected_text = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    yield Figure(
        f"`tftune compare` of equal settings, {N_COMPARES} times", expected_text, "none or one wrong", wrong <= 1
    )


def help_() -> Iterator[Figure]:
    """The help of the whole program."""
    yield _quick("--help", most_s=0.4)


def list_() -> Iterator[Figure]:
    """The list of workloads, none of which is run."""
    yield _quick("workloads", most_s=0.6)


def recommend() -> Iterator[Figure]:
    """A setting from rules, for a workload that is exported already."""
    yield _quick("recommend", "resnet50", "--rules", str(RULES), most_s=3.0, expected_text="recommend resnet50")
    yield _quick("recommend", "densenet201", "--rules", str(RULES), most_s=3.0, expected_text="recommend densenet201")


def _quick(*words: str, most_s: float, expected_text: str | None = None) -> Figure:
    """Return the median of 11 runs of a command, after one that warms the disk and the caches."""
    times = []
    for _ in range(12):
        began = time.monotonic()
        subprocess.run([TFTUNE, *words], stdout=subprocess.DEVNULL, check=True)
        times.append(time.monotonic() - began)
    median = statistics.median(times[1:])
    return Figure(
        f"`tftune {expected_text or ' '.join(words)}`", f"{median:.2f} s", f"at most {most_s} s", median <= most_s
    )


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "help": help_,
    "workloads": list_,
    "loading": workloads.loading,
    "search": search,
    "context": launchers.context,
    "same": launchers.same,
    "rebatch": launchers.rebatch,
    "replication": replication.replication,
    "leak": launchers.leak,
    "pair": pair,
    "compare": compare,
    "simulation": simulation.simulation,
    "searchers": searchers.searchers,
    "rules": rules.figures,
    "recommend": recommend,
    "reports": reports.figures,
    "group": serving.group,
    "run": serving.run,
    "single-calls": serving.single_calls,
    "serving": serving.space,
    "jobs": serving.jobs,
    "predictions": predictions.figures,
    "prediction-speed": predictions.speed,
    "priors": priors.priors,
    "misfits": misfits.misfits,
    "bytime": bytime.bytime,
    "proofs": proofs.figures,
    "rounds": rounds.figures,
    "capacity": capacity.figures,
}


def main(names: list[str]) -> None:
    """Run the wanted parts and print the table."""
    machine = detect()
    print(f"{machine.cpu_model}, {machine.physical_cores} cores, {machine.memory_bytes / 2**30:.0f} GiB\n")
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for part in names or PARTS:
        for figure in PARTS[part]():
            print(figure.row(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
