"""Comparing two settings on their own, for people: `tftune compare`, and `tftune check` of a shipped recommendation.

Both are finals of two: rounds of new processes, each process timed in turns with the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from tuner.errors import BadInputError, TunerError
from tuner.job.events import ComparisonEvents
from tuner.job.job import Job, prepare
from tuner.job.request import Checked
from tuner.job.servers import Servers, parallel_starts
from tuner.job.side import Side, side
from tuner.machine.conditions import Conditions
from tuner.machine.exclusive import measuring_alone
from tuner.measure import finals
from tuner.measure.constraint import Limits
from tuner.measure.contest import FEWEST, Contest
from tuner.measure.finals import Contender, Round
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.warning import DISTURBING, Warning, merge, of_conditions
from tuner.report import evidence
from tuner.report.result.comparison import ComparisonResult, SideResult
from tuner.report.result.study import WarningResult, applied
from tuner.search.record import now
from tuner.stats.equivalence import MARGIN, Verdict, Word

A, B = "a", "b"
LAPS_FRESH, LAPS_FORKED = 4, 2
"""Two processes are started for a round: where a start takes long, each is timed for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was measured of b against a, and what it says."""

    a: Side
    b: Side
    objective: Objective
    rounds: list[Round]
    n_rounds: int
    """How many of them count."""
    margin: float
    level: float | None
    """Of the interval after the last look; None where there was none."""
    verdict: Verdict
    ended: str
    seen: Conditions
    failures: dict[str, str] = field(default_factory=dict)
    began: str = field(default_factory=now)

    def to_dict(self) -> dict[str, object]:
        """Return what has to be kept of it."""
        return {
            "began": self.began,
            "contenders": [contender.to_dict() for contender in _contenders(self.a, self.b)],
            "rounds": [round_.to_dict() for round_ in self.rounds],
            "conditions": self.seen.to_dict(),
        }

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(round_.timed_s for round_ in self.rounds)


def compare(
    checked: Checked,
    a: str,
    b: str,
    *,
    margin: float,
    storage_url: str,
    wait: bool,
    events: ComparisonEvents,
) -> Comparison:
    """Measure b against a; raises BadInputError before anything is measured."""
    with measuring_alone(wait=wait, waiting=events.waiting):
        job = prepare(checked)
        sides = side(a, job, storage_url), side(b, job, storage_url)
        return measure(job, *sides, checked, margin=margin, events=events)


def measure(
    job: Job, a: Side, b: Side, checked: Checked, *, margin: float = MARGIN, events: ComparisonEvents
) -> Comparison:
    """Hold rounds of new processes of both until the verdict is decided or the budget ends.

    The caller holds the right to measure.
    """
    if job.objective is Objective.LATENCY and a.setting.batch_size != b.setting.batch_size:
        raise BadInputError(
            f"--objective latency with batch sizes {a.setting.batch_size} and {b.setting.batch_size}",
            "latency is compared at one batch size",
        )
    contenders = _contenders(a, b)
    began, began_s, budget_s = now(), time.monotonic(), checked.budget.time_s
    watch = job.device.watch(job.machine)
    with Servers(job, deadline_s=checked.deadline_s, say=events.notice) as servers:
        servers.first()  # it comes up while the model is exported
        launcher = job.launcher(deadline_s=checked.deadline_s)
        replicas = servers.replicas(contenders)
        contest = Contest(
            contenders=contenders,
            launcher=launcher,
            replicas=replicas,
            plan=_plan(job, forks=bool(replicas)),
            objective=job.objective,
            margin=margin,
            rng=np.random.default_rng(),
            left_s=lambda: None if budget_s is None else budget_s - (time.monotonic() - began_s),
            say=events.notice,
        )
        contest.hold(lambda: events.looked(contest.n_rounds, contest.verdicts()[A], contest.left_s()))
    seen = watch.seen()
    check_ran(contest.rounds)
    return Comparison(
        a=a,
        b=b,
        objective=job.objective,
        rounds=contest.rounds,
        n_rounds=contest.n_rounds,
        margin=margin,
        level=contest.levels.get(A),
        verdict=contest.verdicts()[A],
        ended=contest.ended,
        began=began,
        seen=seen,
        failures=finals.failures(contest.rounds),
    )


def check_ran(rounds: Sequence[Round]) -> None:
    """Raise TunerError where neither of the two ever ran."""
    if not any(round_.slices for round_ in rounds):
        text = "; ".join(sorted(set(finals.failures(rounds).values())))
        raise TunerError(f"both {text}", "neither of the two runs here")


def _contenders(a: Side, b: Side) -> list[Contender]:
    """Return both, the one that the verdict is on first."""
    return [
        Contender(names=(name,), setting=each.setting, deployment=each.deployment) for name, each in ((B, b), (A, a))
    ]


def _plan(job: Job, *, forks: bool) -> FinalsPlan:
    """Return the plan; of a command every run is a process of its own, so that nothing is gained by several a round."""
    laps = LAPS_FORKED if forks else LAPS_FRESH
    return FinalsPlan(parallel=parallel_starts(job.machine), laps=laps if job.workload.command is None else 1)


def describe(made: Comparison) -> ComparisonResult:
    """Return what is published of a comparison."""
    names, y = finals.table(made.rounds, _contenders(made.a, made.b), made.objective)
    rates = {name: made.objective.shown(rate) for name, rate in finals.rates(names, y, A).items()}
    sides = {
        name: SideResult(
            asked=each.asked,
            **applied(each.deployment),
            rate=rates.get(name),
            **structs.asdict(evidence.tail(made.rounds, name)),
        )
        for name, each in ((A, made.a), (B, made.b))
    }
    warnings = merge(
        of_conditions(made.seen),
        evidence.of_rounds(made.rounds),
        evidence.of_steps(len(evidence.steps_of(made.rounds, B)), made.objective, Limits()),
    )
    return ComparisonResult(
        a=made.a.setting.to_dict(),
        b=made.b.setting.to_dict(),
        speedup=made.verdict.speedup,
        low=made.verdict.low,
        high=made.verdict.high,
        word=made.verdict.word,
        reason=_reason(made, warnings) if made.verdict.word is Word.UNDECIDED else None,
        margin=made.margin,
        level=made.level,
        objective=made.objective,
        unit=made.objective.unit,
        rounds=made.n_rounds,
        fresh_rounds=sum(round_.fresh for round_ in made.rounds if not round_.interruptions),
        ended=made.ended,
        timed_s=round(made.timed_s, 3),
        sides=sides,
        failures=made.failures,
        conditions=Conditions(**made.seen.to_dict()),
        warnings=tuple(WarningResult.of(warning) for warning in warnings),
    )


def _reason(made: Comparison, warnings: Sequence[Warning]) -> str:
    """Return why nothing could be decided."""
    if made.ended == "failed":
        return f"{' and '.join(sorted(made.failures))} did not run"
    blamed = [warning.found for warning in warnings if warning.code in DISTURBING]
    if made.n_rounds <= FEWEST:
        blamed.append(f"{made.n_rounds} rounds are too few: give a longer --time-budget")
    if blamed:
        return "; ".join(blamed)
    if made.verdict.speedup is None:
        return f"{made.n_rounds} rounds differ too much among themselves: a quieter machine, or a longer --time-budget"
    return f"{made.n_rounds} rounds leave open whether the difference matters: give a longer --time-budget"
