"""Proof of which knobs reach a build: what the probe saw, what processes show, and a measured control.

Each knob is set to two values far apart, everything else being held, in two fresh processes with the variable set in
their environment as a user would. What a knob does that reaches nothing is the negative control: a ratio of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tuner.job.job import Job
from tuner.machine.exclusive import measuring_alone
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, PairPlan, ReferenceLost, log_ratios, measure_pair
from tuner.report.result.inspection import ProcessFinding, ProofResult
from tuner.report.result.study import VerdictResult
from tuner.space.deployment import Deployment
from tuner.space.experiment import Reach
from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.stats.equivalence import Verdict, Word, judge
from tuner.stats.estimate import Estimate, estimate
from tuner.trial.audit import Finding
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Started, start_together
from tuner.trial.outcome import Facts, TrialFailure

_PLAN = PairPlan(min_quads=3, max_quads=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What is known of a knob: whether it reaches the build, the evidence, and the pair of its two values.

    `verdict` is of the second value over the first; None, with the reason in `failure`, where a process failed.
    """

    knob: str
    set_by: str
    variable: str | None
    reach: Reach
    values: tuple[Value, Value]
    verdict: Verdict | None
    seen: tuple[Finding, ...] = ()
    """What the processes of the pair showed."""
    timed_s: float = 0.0
    failure: str = ""

    def result(self) -> ProofResult:
        """Return the proof as it is published."""
        processes = (
            ProcessFinding(value=each.value, applied=each.answer, evidence=each.evidence) for each in self.seen
        )
        return ProofResult(
            knob=self.knob,
            set_by=self.set_by,
            variable=self.variable,
            reaches=self.reach.answer,
            evidence=self.reach.evidence,
            processes=tuple(processes),
            values=self.values,
            measured=None if self.verdict is None else VerdictResult.of(self.verdict),
            timed_s=round(self.timed_s, 3),
            says=self.says,
        )

    @property
    def says(self) -> str:
        """Return what the pair says, in words."""
        if self.verdict is None:
            return self.failure
        return {Word.NO_DIFFERENCE: "changes nothing", Word.UNDECIDED: "undecided"}.get(self.verdict.word, "acts")


def prove(job: Job, *, told: Callable[[str], None]) -> list[Proof]:
    """Prove every knob of the thread pools, and those that the job's space has beside them, one after another.

    `told` is called with a line before each.
    """
    asked = list(_far(job))
    proofs = []
    with measuring_alone():
        job.export()
        # What does not take effect is to be seen here, not refused.
        launcher = FreshLauncher(target=replace(job.target(), applied=lambda *_: None))
        for number, (name, low, high) in enumerate(asked, start=1):
            told(f"{number}/{len(asked)}: {name} {low} against {high}, in a pair")
            proofs.append(_prove(job, launcher, name, (low, high)))
    return proofs


def _far(job: Job) -> Iterator[tuple[str, Value, Value]]:
    """Return each knob with two values far apart."""
    for name, knob in job.space.catalogue.knobs.items():
        if knob.far is not None:
            yield name, *knob.far(job.machine)
    for name, domain in job.space.domains.items():
        if not (knob := job.space.catalogue.knobs[name]).core and knob.far is None and len(domain) > 1:
            yield name, domain[0], domain[-1]


def _prove(job: Job, launcher: FreshLauncher, name: str, values: tuple[Value, Value]) -> Proof:
    # Two operators that share two CPUs by luck, for one, would hide what another knob does.
    held = {n: v for n, v in job.framework.held(name).items() if n in job.space.domains}
    quiet = job.space.reference.with_values(**held)
    settings = [quiet.with_values(**{name: value}) for value in values]
    wanted = [(setting, job.space.deployment(setting)) for setting in settings]
    knob = job.space.catalogue.knobs[name]
    probed = None if knob.experiment is None else job.framework.reach(job.build).get(knob.experiment.name)
    proof = Proof(
        knob=name,
        set_by=knob.carrier.title,
        variable=knob.variable,
        reach=probed or Reach(answer=None, evidence=""),
        values=values,
        verdict=None,
    )
    started = start_together(launcher, wanted, parallel=2)
    try:
        failed = next((each.failure for each in started if each.failure is not None), None)
        if failed is not None:
            return replace(proof, failure=f"{failed.status}: {failed.message}")
        found = [_finding(job, each, deployment, name) for each, (_, deployment) in zip(started, wanted, strict=True)]
        seen = tuple(finding for finding in found if finding is not None)
        pair = _measure(started)
    except (TrialFailure, ReferenceLost) as failure:
        return replace(proof, failure=str(failure))
    finally:
        for each in started:
            each.process.close()
    return replace(
        proof,
        reach=_together(proof.reach, seen),
        seen=seen,
        verdict=judge(_estimate(pair, settings)),
        timed_s=pair.timed_s,
    )


def _measure(started: list[Started]) -> Pair:
    low, high = (each.process for each in started)
    settings = [each.setting for each in started]

    def enough(pair: Pair) -> bool:
        return judge(_estimate(pair, settings)).word is not Word.UNDECIDED

    steps = [each.facts.step_s for each in started if each.facts is not None]
    return measure_pair(low, high, _PLAN, step_s=(steps[0], steps[1]), enough=enough)


def _estimate(pair: Pair, settings: list[Setting]) -> Estimate:
    low, high = (setting.batch_size for setting in settings)
    return estimate([float(x) for x in log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(high, low))])


def _finding(job: Job, started: Started, deployment: Deployment, name: str) -> Finding | None:
    facts: Facts | None = started.facts
    assert facts is not None  # only processes that did not fail come here
    found = job.auditor.audit(started.setting, deployment, facts.effective)
    return next((finding for finding in found if finding.knob == name), None)


def _together(probed: Reach, seen: Sequence[Finding]) -> Reach:
    """Return what the probe and the processes say together: a process that contradicts the probe wins."""
    against = next((finding for finding in seen if finding.answer is False), None)
    if against is not None and probed.answer is not False:
        return Reach(answer=False, evidence=f"at {against.value}: {against.evidence}")
    if seen and {finding.answer for finding in seen} == {True} and not probed.answer:
        return Reach(answer=True, evidence=seen[-1].evidence)
    return probed if probed.evidence or not seen else Reach(answer=None, evidence=seen[-1].evidence)
