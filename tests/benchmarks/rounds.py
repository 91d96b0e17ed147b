"""How often intervals of few rounds cover, and how wide they are: two processes of the default, and a group.

The two of the default are equal, so that their log-ratio is 0. That of the group to either is taken to be the mean of
all rounds. The intervals of each n rounds in a row, which overlap, are held against these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from tests.benchmarks.figures import Figure
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.locks import machine_lock
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import pass_log_ratios, slice_log_rates
from tuner.measure.rounds import Contender, Round, run_round
from tuner.stats.estimate import Array, estimate
from tuner.stats.noise import PRIOR_NOISE, log_ratio_of_rounds
from tuner.trial.forking import ForkLauncher
from tuner.workload.spec import WorkloadSpec

WORKLOADS = {"resnet50": 8, "mobilenetv2": 1}
"""With their batch sizes."""
N_ROUNDS, PASSES = 24, 4
NOISE = replace(PRIOR_NOISE, process_sd=0.004, n_pairs=1)
_SEED = 28


def rounds_of(workload: str, batch_size: int) -> tuple[list[Round], list[Contender]]:
    """Return rounds of two processes of the default, `a` and `b`, and of two processes side by side, `group`."""
    request = SearchRequest(workload=WorkloadSpec.of_name(workload), python=sys.executable, instances=True)
    job = prepare(parse_request(request, stores=False))
    job.export()
    default, group = (
        setting.with_values(batch_size=batch_size) for setting in (job.space.reference, next(iter(job.space.groups)))
    )
    contenders = [
        Contender(names=(name,), setting=setting, deployment=job.space.deployment(setting))
        for name, setting in (("a", default), ("b", default), ("group", group))
    ]
    rng = np.random.default_rng(_SEED)
    with closing(ForkLauncher(job.target())) as launcher, machine_lock(wait=True):
        plan = FinalsPlan(passes=PASSES)
        return [run_round(contenders, launcher, plan, rng, fresh=False) for _ in range(N_ROUNDS)], contenders


def coverage(deviations: list[list[Array]], n: int) -> tuple[float, float, float]:
    """Return how often 95 % intervals of n rounds in a row cover 0, and their median half widths at 99 % (log).

    `deviations` are the log-ratios of each round's passes for each pair of contenders, less the true one. The second
    width is that of the textbook's interval of the rounds' means.
    """
    windows = [of_pair[i : i + n] for of_pair in deviations for i in range(len(of_pair) - n + 1)]
    moderated = [log_ratio_of_rounds(window, NOISE) for window in windows]
    plain = [estimate([float(d.mean()) for d in window]) for window in windows]
    covers = np.mean([abs(each.mean) < each.half_width() for each in moderated])
    own, textbook = (float(np.median([each.half_width(0.99) for each in of_kind])) for of_kind in (moderated, plain))
    return float(covers), own, textbook


def figures() -> Iterator[Figure]:
    """Yield the figures of each workload."""
    for workload, batch_size in WORKLOADS.items():
        rounds, contenders = rounds_of(workload, batch_size)
        of_slices = slice_log_rates(rounds, contenders, Objective.THROUGHPUT)
        for passes in (2, PASSES):
            deviations = []
            for first, second in (("a", "b"), ("a", "group"), ("b", "group")):
                of_pair = pass_log_ratios(rounds, of_slices, first, second)
                truth = 0.0 if second == "b" else float(np.mean([d.mean() for d in of_pair]))
                deviations += [[d[at : at + passes] - truth for d in of_pair] for at in range(0, PASSES, passes)]
            for n in (2, 3, 4, 6):
                covers, moderated, plain = coverage(deviations, n)
                yield Figure(
                    f"{workload}, batch {batch_size}, {passes} passes a round: 95 % intervals of {n} rounds cover in "
                    "(half width at 99 %; that of the textbook's)",
                    f"{100 * covers:.0f} % (± {100 * moderated:.0f} %; ± {100 * plain:.0f} %)",
                    "at least 94 %",
                    covers >= 0.94,
                )
