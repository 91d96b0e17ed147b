"""Show which knobs take effect in a build: by the probe, by the audit of processes, and by a measurement.

Each knob is set to two values far apart, everything else being held, in two new processes with the variable set in
their environment as a user would. What a knob does that reaches nothing is the negative control: a ratio of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tuner.job.job import Job
from tuner.machine.locks import machine_lock
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, ReferenceLost, log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.result.inspection import ProcessFinding, ProofResult
from tuner.result.study import VerdictResult
from tuner.space.deployment import Deployment
from tuner.space.experiment import Reach
from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.stats.equivalence import Verdict, VerdictCode, verdict_on
from tuner.stats.estimate import Estimate, estimate
from tuner.trial.audit import Finding
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import StartResult, start_together
from tuner.trial.outcome import ReadyReport, TrialFailure

_MIN_PASSES, _MAX_PASSES = 3, 10
_LEVEL = 0.95  # of all intervals together


def prove(job: Job, *, notify: Callable[[str], None]) -> list[ProofResult]:
    """Prove every knob of the thread pools, and those that the job's space has beside them, one after another.

    `notify` is called with a line before each.
    """
    contrasts = list(_contrasts(job))
    level = 1 - (1 - _LEVEL) / max(1, len(contrasts))  # Bonferroni: else chance moves one of many knobs
    proofs = []
    with machine_lock():
        job.device.check_idle()
        job.export(notify=notify)
        # What does not take effect is to be seen here, not refused.
        launcher = FreshLauncher(target=replace(job.target(), audit_failure=lambda _, *shown: job.see(*shown)))
        for number, (name, low, high) in enumerate(contrasts, start=1):
            notify(f"{number}/{len(contrasts)}: comparing {name}={low} with {name}={high}")
            proofs.append(_prove(job, launcher, name, (low, high), level))
    return proofs


def _contrasts(job: Job) -> Iterator[tuple[str, Value, Value]]:
    """Yield each knob with two values far apart."""
    for name, knob in job.space.catalogue.knobs.items():
        if knob.contrast_values is not None:
            yield name, *knob.contrast_values(job.machine)
    for name, domain in job.space.domains.items():
        if (
            not (knob := job.space.catalogue.knobs[name]).in_every_setting
            and knob.contrast_values is None
            and len(domain) > 1
        ):
            yield name, domain[0], domain[-1]


def _prove(job: Job, launcher: FreshLauncher, name: str, values: tuple[Value, Value], level: float) -> ProofResult:
    # For example, two operators that happen to share two CPUs would hide the effect of another knob.
    fixed = {n: v for n, v in job.framework.fixed_while_proving(name).items() if n in job.space.domains}
    quiet = job.space.reference.with_values(**fixed)
    settings = [quiet.with_values(**{name: value}) for value in values]
    requests = [(setting, job.space.deployment(setting)) for setting in settings]
    knob = job.space.catalogue.knobs[name]
    probed = None if knob.experiment is None else job.framework.reach(job.build).get(knob.experiment.name)
    reach, findings = probed or Reach(answer=None, evidence=""), tuple[Finding, ...]()
    verdict: Verdict | None = None
    timed_s = 0.0
    started = start_together(launcher, requests, parallel=2)
    try:
        failed = next((each.failure for each in started if each.failure is not None), None)
        if failed is not None:
            raise TrialFailure(failed.status, f"{failed.status}: {failed.message}")
        found = [_finding(job, each, deployment, name) for each, (_, deployment) in zip(started, requests, strict=True)]
        pair = _measure(started, level)
        findings = tuple(finding for finding in found if finding is not None)
        reach = _combined(reach, findings)
        verdict, timed_s = verdict_on(_estimate(pair, settings), level=level), pair.timed_s
        says = pair_text(verdict.code, reach)
    except (TrialFailure, ReferenceLost) as failure:
        says = str(failure)
    finally:
        for each in started:
            each.process.close()
    processes = (ProcessFinding(value=each.value, applied=each.answer, evidence=each.evidence) for each in findings)
    return ProofResult(
        knob=name,
        set_by=knob.carrier.title,
        variable=knob.variable,
        reaches=reach.answer,
        evidence=reach.evidence,
        processes=tuple(processes),
        values=values,
        measured=None if verdict is None else VerdictResult.of(verdict),
        timed_s=round(timed_s, 3),
        says=says,
    )


def pair_text(code: VerdictCode, reach: Reach) -> str:
    """Return what a pair says of a knob, in words."""
    shown = "has an effect" if reach.answer is not False else "chance or load, as it cannot act"
    return {VerdictCode.NO_DIFFERENCE: "no effect", VerdictCode.UNDECIDED: "undecided"}.get(code, shown)


def _measure(started: list[StartResult], level: float) -> Pair:
    low, high = (Live(process=each.process, usual_s=[each.facts.step_s]) for each in started if each.facts is not None)
    settings = [each.setting for each in started]

    def enough(pair: Pair) -> bool:
        return verdict_on(_estimate(pair, settings), level=level).code is not VerdictCode.UNDECIDED

    return run_pair(low, high, enough=enough, min_passes=_MIN_PASSES, max_passes=_MAX_PASSES)


def _estimate(pair: Pair, settings: list[Setting]) -> Estimate:
    low, high = (setting.batch_size for setting in settings)
    return estimate([float(x) for x in log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(high, low))])


def _finding(job: Job, started: StartResult, deployment: Deployment, name: str) -> Finding | None:
    facts: ReadyReport | None = started.facts
    assert facts is not None  # only processes that did not fail come here
    findings = job.auditor.audit(started.setting, deployment, facts.effective)
    return next((finding for finding in findings if finding.knob == name), None)


def _combined(probed: Reach, findings: Sequence[Finding]) -> Reach:
    """Return what the probe and the processes say together: a process that contradicts the probe wins."""
    against = next((finding for finding in findings if finding.answer is False), None)
    if against is not None and probed.answer is not False:
        return Reach(answer=False, evidence=f"at {against.value}: {against.evidence}")
    if findings and {finding.answer for finding in findings} == {True} and not probed.answer:
        return Reach(answer=True, evidence=findings[-1].evidence)
    return probed if probed.evidence or not findings else Reach(answer=None, evidence=findings[-1].evidence)
