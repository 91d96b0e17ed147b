"""Check a recommendation that is in use: does it still help here and now? For example in a nightly job.

A check is another session of its study: what it finds is kept there, and the verdict is that of all sessions together.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from tuner.errors import BadInputError, TunerError
from tuner.job import comparable, compare
from tuner.job.compare import A, B, ComparedSetting, Comparison, measure
from tuner.job.events import ComparisonEvents, TaskEvents
from tuner.job.job import Job, prepare
from tuner.job.parsed import ParsedRequest, check_margin
from tuner.job.parsed import parse_request as understand
from tuner.job.request import MAY_CHANGE, TRIAL_TIMEOUT, CheckRequest, SearchRequest, StudyRequest
from tuner.machine.locks import machine_lock
from tuner.measure.objective import OF_MODELS, Objective
from tuner.result import evidence
from tuner.result.comparison import CheckResult, LatencyRatio, NothingToCheck
from tuner.result.decision import closest_s, of_setting, pooled_result, pooled_sessions
from tuner.result.document import answer_of, describe_study
from tuner.result.wording import pointer
from tuner.space import spacefile
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import Verdict, VerdictCode
from tuner.stats.pooling import PooledVerdict
from tuner.stats.tail import LimitStatus
from tuner.study.attributes import Attributes, StoredFinals
from tuner.study.record import now
from tuner.study.storage import check_storage, find_in, storage_errors
from tuner.trial.outcome import RUN_IT
from tuner.workload.feed import inputs_text, made_otherwise
from tuner.workload.spec import WorkloadSpec


@storage_errors()
def check_study(request: CheckRequest, events: ComparisonEvents) -> CheckResult | NothingToCheck:
    """Measure a study's recommendation against the default, on this machine as it is now; another answer if asked.

    The margin is that of the study's own finals, if no other is given.

    Raises BadInputError where there is no such study, its workload is gone, or it was made with another machine,
    build or workload, whose sessions are not comparable.
    """
    if request.margin is not None:
        check_margin(request.margin)
    record = find_in(request.storage, request.study)
    check_storage(request.storage)  # what is measured is to be kept there
    stored, described = record.attributes(), describe_study(record)
    if stored.objective is Objective.CAPACITY:
        raise BadInputError(
            f"study {record.name} is of what settings carry within a limit, and a check measures no load",
            f"measure it again with: tftune load {record.name}",
        )
    answer = answer_of(described, groups=request.instances, same_latency=request.same_latency)
    held = answer.finals
    advice = held.advice  # of the finals: what sessions together did not bear out may come to
    if advice.source == described.default:
        is_of_one = held is described.finals
        better = pointer(described, "check", record.name, request.storage) if is_of_one else None
        against = answer.verdicts.get(described.default)
        is_undecided = against is not None and against.code is VerdictCode.UNDECIDED
        return nothing_to_check(record.name, better=better, is_undecided=is_undecided)
    default = Setting.of(described.baselines[described.default].setting)
    recommended = Setting.of(advice.setting)
    batch_sizes = {default.batch_size} | (set() if stored.objective.has_fixed_batch else {recommended.batch_size})
    margin = held.margin if request.margin is None else request.margin
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        job = again(stored, request, batch_sizes, events, spec=request.spec)
        comparison = measure(
            job,
            ComparedSetting(name=described.default, setting=default, deployment=default_deployment(job, default)),
            ComparedSetting(name=f"study {record.name}", setting=recommended, deployment=advice.deployment),
            margin=margin,
            limits=stored.limits,
            events=events,
        )
    for name, text in comparison.failures.items():
        if comparison.ended == "failed" or not any(name in round_.slices for round_ in comparison.rounds):
            raise TunerError(
                f"{'the default' if name == A else 'the recommendation'} {text}",
                comparison.hints.get(name, RUN_IT),
            )
    with storage_errors():
        record.add("checks", comparison)
        record.put("updated", now())
    limit_statuses = evidence.limit_statuses(comparison.rounds, (A, B), stored.limits) if stored.limits else {}
    kept, is_own = record.attributes(), answer is described.same_latency
    study_sessions = of_setting(kept, recommended, same_latency=is_own)
    pooled = pooled_sessions(study_sessions, level=comparison.level or 0.95, margin=margin)
    return check_result(
        record.name,
        comparison,
        pooled,
        limit_statuses=limit_statuses,
        closest_s=closest_s(study_sessions),
        latency=latency_ratio(kept.checks[-1]) if request.same_latency else None,
    )


def again(
    stored: Attributes,
    request: StudyRequest,
    batch_sizes: Collection[int],
    events: TaskEvents,
    *,
    spec: WorkloadSpec | None = None,
) -> Job:
    """Return the job that a study was, ready to be measured with these batch sizes; `spec` takes its workload's place.

    Raises BadInputError where it was made on another machine, with another build, workload or inputs.
    """
    job = prepare(_parsed_request(stored, batch_sizes, request, spec or stored.spec))
    job.tell_notes(events.notice)
    refuse_elsewhere(stored, job)
    _refuse_other_inputs(stored, job, events)
    return job


def default_deployment(job: Job, default: Setting) -> Deployment:
    """Return what applies the default: nothing but the batch size, in each process of an ensemble."""
    if job.workload.members:
        return job.space.deployment(default)
    return Deployment(arguments={"batch_size": default.batch_size})


def nothing_to_check(study: str, *, better: str | None = None, is_undecided: bool = False) -> NothingToCheck:
    """Return the answer where a study recommends the default, perhaps only because nothing was decided.

    `better` is what was proven of several processes instead, in words, where the default is that of one process.
    """
    reason = f"study {study} recommends the default: there is nothing to check"
    if is_undecided:
        reason = f"study {study} is undecided and keeps the default: its search again decides more"
    if better is not None:
        reason = f"study {study} recommends the default for a single process, but {better}"
    return NothingToCheck(study=study, reason=reason)


def check_result(
    study: str,
    comparison: Comparison,
    pooled: PooledVerdict,
    *,
    limit_statuses: Mapping[str, LimitStatus] | None = None,
    closest_s: float | None = None,
    latency: LatencyRatio | None = None,
) -> CheckResult:
    """Return the comparison of a study's recommendation with the default, and what all sessions say together.

    `limit_statuses` says whether the default (a) and the recommendation (b) keep to the study's limits, and `closest_s`
    is the time (s) between the two sessions that lie closest. With `latency`, a call may not be shown to take longer.
    """
    is_longer = latency is not None and latency.low > 1
    return CheckResult(
        **structs.asdict(compare.describe(comparison)),
        study=study,
        helps=False if is_longer else _helps(comparison.verdict, pooled, limit_statuses or {}),
        limits=dict(limit_statuses) if limit_statuses else None,
        together=pooled_result(pooled),
        closest_s=closest_s,
        latency=latency,
    )


def latency_ratio(held: StoredFinals) -> LatencyRatio | None:
    """Return how many times as long a call took under the recommendation in a check; None where it is not known."""
    ratio = held.estimates(Objective.LATENCY).log_ratio(B, A)  # of rates, which are its inverse
    if ratio is None:
        return None
    low, high = ratio.interval()
    return LatencyRatio(ratio=ratio.ratio, low=low, high=high if math.isfinite(high) else None)


def _helps(verdict: Verdict, pooled: PooledVerdict, limit_statuses: Mapping[str, LimitStatus]) -> bool | None:
    """Return True if it is shown to be better, False if shown not to be, None if undecided.

    Where sessions disagree, this one counts: what helped once and is shown not to help today, does not. Under limits it
    has to keep to them, and helps already where the default does not.
    """
    if limit_statuses.get(B) is LimitStatus.BROKEN:
        return False
    if verdict.speedup is None:
        return None
    if limit_statuses.get(A) is LimitStatus.BROKEN:
        return True
    code = verdict.code if pooled.sessions_disagree else pooled.verdict.code
    if code is VerdictCode.BETTER:
        return None if pooled.sessions_disagree else True
    return None if code is VerdictCode.UNDECIDED else False


def _parsed_request(
    stored: Attributes, batch_sizes: Collection[int], request: StudyRequest, spec: WorkloadSpec
) -> ParsedRequest:
    """Return the request that the study was, in the folder that it was made in."""
    subject, objective = stored.subject, stored.objective
    python = request.python
    interpreter = stored.python if python is None else str(Path(shutil.which(python) or python).absolute())
    framework, space = subject.framework, subject.space
    is_own = objective in OF_MODELS and objective is not Objective.CAPACITY
    try:
        # A node of a cluster is in its own folder already, and another machine may lack the folder of the study.
        is_here = isinstance(request, CheckRequest) and request.spec is not None
        with contextlib.chdir("." if is_here or not Path(stored.folder).is_dir() else stored.folder):
            checked = understand(
                SearchRequest(
                    workload=replace(spec, framework=framework.name),
                    space=space if space in spacefile.names(framework.spaces) else None,
                    numerics=MAY_CHANGE,  # what was found is measured again, whatever it is
                    python=interpreter,
                    # What a capacity follows from is throughput.
                    objective=objective.value if is_own else Objective.THROUGHPUT.value,
                    time_budget=request.time_budget,
                    trial_timeout=request.trial_timeout or stored.trial_timeout or TRIAL_TIMEOUT,
                    batch_size=",".join(map(str, sorted(batch_sizes))),
                ),
                stores=False,
            )
            command = checked.workload.command
            is_untold = command is not None and "batch_size" not in command.placeholders
            return replace(checked, batch_sizes=None) if is_untold else checked
    except (BadInputError, OSError) as error:
        reason = error.message if isinstance(error, BadInputError) else str(error)
        raise BadInputError(
            f"cannot use the workload of study {stored.study}: {reason}",
            "restore the workload, or run a new search",
        ) from error


def _refuse_other_inputs(stored: Attributes, job: Job, events: TaskEvents) -> None:
    """Raise BadInputError where the model of the study was fed with other values, made up by another version."""
    if job.workload.command is None:
        job.export(notify=events.notice)
    if made_otherwise(stored.subject.workload.fed) != made_otherwise(job.inputs):
        raise BadInputError(
            f"study {stored.study} was measured with other made-up inputs: now they are {inputs_text(job.inputs)}",
            "its results are not comparable here: run a new search",
        )


def refuse_elsewhere(stored: Attributes, job: Job) -> None:
    """Raise BadInputError where the study was made on something else than what is here."""
    there, here = stored.subject, job.subject
    environment = there.environment or {}
    changed = []
    if there.machine.id != here.machine.id:
        changed.append(f"machine ({comparable.machine_difference(there.machine, here.machine)})")
    if there.device_identity != here.device_identity:
        changed.append(f"device ({comparable.difference(there.device_identity, here.device_identity)})")
    if there.workload.fingerprint != here.workload.fingerprint:
        changed.append(f"workload ({comparable.workload_difference(there.workload, here.workload)})")
    is_here = not changed
    if there.runtime["id"] != here.runtime["id"]:
        changed.append(f"build ({comparable.build_difference(there.runtime, here.runtime)})")
    if environment != job.environment:
        changed.append(f"environment ({comparable.difference(environment, job.environment)})")
    if changed:
        hint = "its results are not comparable here: run a new search, or `tftune compare` the two settings"
        if is_here and environment != job.environment:  # on which the build may depend
            hint = f"{_way_back(environment, job.environment)}, as the study had it, or run a new search"
        raise BadInputError(
            f"study {stored.study} was measured with a different {' and a different '.join(changed)}", hint
        )


def _way_back(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return what to set and unset to have the environment of a study again."""
    to_set = [f"{name}={shlex.quote(value)}" for name, value in there.items() if here.get(name) != value]
    to_unset = [name for name in here if name not in there]
    steps = {"set": to_set, "unset": to_unset}
    return " and ".join(f"{verb} {' '.join(names)}" for verb, names in steps.items() if names)
