"""Check a recommendation that is in use: does it still help here and now? For example in a nightly job.

A check is another session of its study: what it finds is kept there, and the verdict is that of all sessions together.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from tuner.errors import BadInputError, TunerError
from tuner.job import comparable, compare
from tuner.job.compare import A, B, Comparison, measure
from tuner.job.compared import ComparedSetting
from tuner.job.events import ComparisonEvents
from tuner.job.job import Job, prepare
from tuner.job.request import MAY_CHANGE, TRIAL_TIMEOUT, ParsedRequest, SearchRequest, check_margin
from tuner.job.request import parse_request as understand
from tuner.machine.locks import machine_lock
from tuner.measure.objective import OF_MODELS, Objective
from tuner.result import evidence
from tuner.result.comparison import CheckResult, NothingToCheck
from tuner.result.decision import closest_s, of_setting, pooled_result, pooled_sessions
from tuner.result.document import describe_study, no_finals, no_groups
from tuner.result.wording import pointer
from tuner.space import spacefile
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import VerdictCode
from tuner.stats.pooling import PooledVerdict
from tuner.stats.tail import LimitStatus
from tuner.study.attributes import Attributes
from tuner.study.record import now
from tuner.study.storage import check_storage, find, no_study, open_storage, storage_errors
from tuner.trial.outcome import RUN_IT
from tuner.workload.feed import line, made_otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCheck:
    """The comparison of a study's recommendation with the default; None where the default is what it recommends.

    `pooled` is what all sessions of the study say together, this one among them.
    """

    study: str
    comparison: Comparison | None
    better: str | None = None
    """What was proven of several processes instead, in words, where one process is recommended the default."""
    is_undecided: bool = False
    """Whether the default is recommended only because nothing was decided."""
    pooled: PooledVerdict | None = None
    limit_statuses: dict[str, LimitStatus] = field(default_factory=dict)
    """Whether the default (a) and the recommendation (b) keep to the study's limits; empty where it has none."""
    closest_s: float | None = None
    """The time (s) between the two sessions that lie closest; None where that is not known."""

    @property
    def helps(self) -> bool | None:
        """Return True if it is shown to be better, False if shown not to be, None if undecided.

        Where sessions disagree, this one counts: what helped once and is shown not to help today, does not. Under
        limits it has to keep to them, and helps already where the default does not.
        """
        if self.comparison is None or self.pooled is None:
            return None
        if self.limit_statuses.get(B) is LimitStatus.BROKEN:
            return False
        if self.comparison.verdict.speedup is None:
            return None
        if self.limit_statuses.get(A) is LimitStatus.BROKEN:
            return True
        word = self.comparison.verdict.code if self.pooled.sessions_disagree else self.pooled.verdict.code
        if word is VerdictCode.BETTER:
            return None if self.pooled.sessions_disagree else True
        return None if word is VerdictCode.UNDECIDED else False


@storage_errors()
def check_study(
    study: str,
    *,
    storage_url: str,
    python: str | None,
    budget: str,
    trial_timeout: str | None,
    margin: float | None,
    wait: bool,
    events: ComparisonEvents,
    groups: bool = False,
) -> StudyCheck:
    """Measure a study's recommendation against the default, on this machine as it is now; of `groups`, if asked.

    The margin is that of the study's own finals, if no other is given.

    Raises BadInputError where there is no such study, its workload is gone, or it was made with another machine,
    build or workload, whose sessions are not comparable.
    """
    if margin is not None:
        check_margin(margin)
    storage = open_storage(storage_url, create=False)
    if storage is None:
        raise no_study(study, storage_url)
    check_storage(storage_url)  # what is measured is to be kept there
    record = find(storage, study)
    stored, described = record.attributes(), describe_study(record)
    held = described.finals
    if groups:
        if described.groups is None:
            raise no_groups(described)
        held = described.groups.finals
    if held is None:
        raise no_finals(record.name)
    advice = held.advice  # of the finals: what sessions together did not bear out may come to
    if advice.source == described.default:
        better = None if groups else pointer(described, "check", record.name, storage_url)
        verdicts = (described.groups.verdicts if described.groups else {}) if groups else described.verdicts or {}
        against = verdicts.get(described.default)
        is_undecided = against is not None and against.code is VerdictCode.UNDECIDED
        return StudyCheck(study=record.name, comparison=None, better=better, is_undecided=is_undecided)
    default = Setting.of(described.baselines[described.default].setting)
    recommended = Setting.of(advice.setting)
    checked = _parsed_request(
        stored,
        {default.batch_size} | (set() if stored.objective.has_fixed_batch else {recommended.batch_size}),
        python=python,
        budget=budget,
        trial_timeout=trial_timeout,
    )
    margin = held.margin if margin is None else margin
    with machine_lock(wait=wait, on_wait=events.waiting):
        job = prepare(checked)
        job.tell_notes(events.notice)
        refuse_elsewhere(stored, job)
        _refuse_other_inputs(stored, job, events)
        comparison = measure(
            job,
            ComparedSetting(name=described.default, setting=default, deployment=_of_default(job, default)),
            ComparedSetting(name=f"study {record.name}", setting=recommended, deployment=advice.deployment),
            checked,
            margin=margin,
            events=events,
        )
    for name, text in comparison.failures.items():
        if comparison.ended == "failed" or not any(name in round_.slices for round_ in comparison.rounds):
            raise TunerError(
                f"{'the default' if name == A else 'the recommendation'} {text}",
                comparison.hints.get(name, RUN_IT),
            )
    with storage_errors():
        record.add("checks", comparison.to_dict())
        record.put("updated", now())
    limit_statuses = evidence.limit_statuses(comparison.rounds, (A, B), stored.limits) if stored.limits else {}
    study_sessions = of_setting(record.attributes(), recommended)
    pooled = pooled_sessions(study_sessions, level=comparison.level or 0.95, margin=margin)
    return StudyCheck(
        study=record.name,
        comparison=comparison,
        pooled=pooled,
        limit_statuses=limit_statuses,
        closest_s=closest_s(study_sessions),
    )


def _of_default(job: Job, default: Setting) -> Deployment:
    """Return what applies the default: nothing but the batch size, in each process of an ensemble."""
    if job.workload.members:
        return job.space.deployment(default)
    return Deployment(arguments={"batch_size": default.batch_size})


def describe(result: StudyCheck) -> CheckResult | NothingToCheck:
    """Return what is published of a check."""
    if result.comparison is None or result.pooled is None:
        reason = f"study {result.study} recommends the default: there is nothing to check"
        if result.is_undecided:
            reason = f"study {result.study} is undecided and keeps the default: its search again decides more"
        if result.better is not None:
            reason = f"study {result.study} recommends the default for a single process, but {result.better}"
        return NothingToCheck(study=result.study, reason=reason)
    return CheckResult(
        **structs.asdict(compare.describe(result.comparison)),
        study=result.study,
        helps=result.helps,
        limits=result.limit_statuses or None,
        together=pooled_result(result.pooled),
        closest_s=result.closest_s,
    )


def _parsed_request(
    stored: Attributes, batch_sizes: Collection[int], *, python: str | None, budget: str, trial_timeout: str | None
) -> ParsedRequest:
    """Return the request that the study was, in the folder that it was made in."""
    subject, objective = stored.subject, stored.objective
    interpreter = stored.get("python", str) if python is None else str(Path(shutil.which(python) or python).absolute())
    framework, space = subject.framework, subject.space
    try:
        with contextlib.chdir(stored.folder):
            checked = understand(
                SearchRequest(
                    workload=replace(stored.spec, framework=framework.name),
                    space=space if space in spacefile.names(framework.spaces) else None,
                    numerics=MAY_CHANGE,  # what was found is measured again, whatever it is
                    python=interpreter,
                    objective=objective.value if objective in OF_MODELS else Objective.THROUGHPUT.value,
                    time_budget=budget,
                    trial_timeout=trial_timeout or stored.get("trial_timeout", str) or TRIAL_TIMEOUT,
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


def _refuse_other_inputs(stored: Attributes, job: Job, events: ComparisonEvents) -> None:
    """Raise BadInputError where the model of the study was fed with other values, made up by another version."""
    if job.workload.command is None:
        job.export(notify=events.notice)
    if made_otherwise(stored.subject.workload.fed) != made_otherwise(job.inputs):
        raise BadInputError(
            f"study {stored.study} was measured with other made-up inputs: now they are {line(job.inputs)}",
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
