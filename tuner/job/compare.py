"""Compare two settings: `tftune compare` and `tftune check`.

Both are finals of two: rounds of new processes, each process timed in turns with the other.

A check asks whether a recommendation that is in use still helps here and now, for example in a nightly job. It is
another session of its study: what it finds is kept there, and the verdict is that of all sessions together.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from msgspec import convert, structs

from tuner.errors import BadInputError, TunerError, UnknownNameError, unknown_name
from tuner.job import comparable
from tuner.job.events import ComparisonEvents, TaskEvents
from tuner.job.job import Job, feasible, prepare
from tuner.job.parsed import ParsedRequest, check_margin, parse_request
from tuner.job.request import MAY_CHANGE, TRIAL_TIMEOUT, CheckRequest, CompareRequest, SearchRequest, StudyRequest
from tuner.job.servers import Servers, parallel_starts
from tuner.machine.conditions import Conditions
from tuner.machine.host import node_name
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.constraint import Limits
from tuner.measure.group_sequential import MIN_ROUNDS, SequentialTest
from tuner.measure.objective import OF_MODELS, Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import adjusted_rates, failures, last_hint, log_rates
from tuner.measure.rounds import Contender, Round, Rounds
from tuner.measure.warning import DISTURBING, Code, MeasurementWarning, condition_warnings, merge
from tuner.result import evidence, fields_of
from tuner.result.comparison import CheckResult, ComparisonResult, LatencyRatio, NothingToCheck, SideResult
from tuner.result.decision import closest_s, of_setting, pooled_result, pooled_sessions
from tuner.result.document import advice_of, answer_of, describe_study
from tuner.result.study import WarningResult, applied
from tuner.result.wording import pointer
from tuner.space import spacefile
from tuner.space.carrier import Preload
from tuner.space.deployment import Deployment
from tuner.space.groups import INSTANCES, batch_total
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.stats.equivalence import DIFFERENCES, MARGIN, Verdict, VerdictCode
from tuner.stats.estimate import estimate
from tuner.stats.noise import PRIOR_NOISE
from tuner.stats.pooling import PooledVerdict
from tuner.stats.tail import QUANTILES, LimitStatus, samples_needed
from tuner.study.attributes import Attributes, StoredFinals
from tuner.study.record import now
from tuner.study.storage import LAST, check_storage, find, find_in, no_study, open_storage, storage_errors
from tuner.trial.outcome import RUN_IT, Status, way_out
from tuner.workload.feed import InputFacts, inputs_text, made_otherwise
from tuner.workload.spec import WorkloadSpec

A, B = "a", "b"
PASSES_FRESH, PASSES_FORKED = 4, 2
"""Two processes are started for a round: where a start takes long, each is timed for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSetting:
    """One of the two: what the user called it, and what that is here."""

    name: str
    setting: Setting
    deployment: Deployment


def parse_compared(text: str, job: Job, storage_url: str, *, is_here: bool = True) -> ComparedSetting:
    """Return what `text` names: `knob=value,…` on top of the default, a baseline, or a study's recommendation.

    Raises BadInputError where it names nothing, or what cannot act here. Of a job on a machine that is not here, the
    build is not asked.
    """
    space = job.space
    if "=" in text:
        setting = space.reference.with_values(**_values(text, job))
    elif text in space.baselines:
        setting = space.baselines[text]
    elif any(each.name == text for each in space.catalogue.baselines):
        raise _missing_baseline(text, space, job.device.kind)
    else:
        setting = _recommended(text, job, storage_url)
    items = space.total_batch
    if items is not None and batch_total(setting) != items:
        n = int(setting[INSTANCES])
        raise BadInputError(
            f"'{text}' has steps of {batch_total(setting)} items, and --objective latency compares steps of {items}",
            f"add batch_size={items // n}" if items % n == 0 else f"give a --batch-size that {n} divides",
        )
    for name, value in setting.items:
        carrier = space.catalogue.knobs[name].carrier
        if isinstance(carrier, Preload) and carrier.is_missing(value, space.libraries):
            raise BadInputError(f"{name}={value}: this library is not installed", "install it first")
    if is_here:
        job.framework.check(job.build, [setting])
    return ComparedSetting(name=text, setting=setting, deployment=space.deployment(setting))


def _missing_baseline(name: str, space: Space, device: str) -> BadInputError:
    """Return the error for a baseline that a space does not have."""
    baseline = next(each for each in space.catalogue.baselines if each.name == name)
    needs = baseline.needs - space.domains.keys()
    if device not in baseline.devices:
        return BadInputError(
            f"{name} is for the {' and the '.join(baseline.devices)}, and this is for the {device}",
            f"expected one of {', '.join(space.baselines)}",
        )
    if needs:
        return BadInputError(f"{name} sets {', '.join(sorted(needs))}", "add --space serving, which has that")
    return BadInputError(
        f"{name} cannot share a batch of {space.total_batch} evenly among its processes", "give another --batch-size"
    )


def _values(text: str, job: Job) -> dict[str, Value]:
    """Return the values of `knob=value,…`."""
    values: dict[str, Value] = {}
    for part in job.space.catalogue.assignments(text):
        name, _, value = part.partition("=")
        parsed = job.space.catalogue.knob(name).parse(value, job.machine)
        if name in job.space.inactive:
            raise BadInputError(f"{name}={value} would have no effect: {job.space.inactive[name]}", "remove it")
        if name not in job.space.domains:
            raise BadInputError(
                f"{name} is not part of the search space '{job.space.name}'",
                "choose a --space that has it, or add it to a space file",
            )
        if values.get(name, parsed) != parsed:
            raise BadInputError(f"{name} is given twice in '{text}'", "keep one of them")
        values[name] = parsed
    return values


@storage_errors()
def _recommended(text: str, job: Job, storage_url: str) -> Setting:
    storage = open_storage(storage_url, create=False)
    if storage is None and text == LAST:
        raise no_study(text, storage_url)
    if storage is None:
        raise unknown_name("setting", text, job.space.baselines)  # nor can it be a study
    try:
        record = find(storage, text)
    except UnknownNameError as error:
        baseline_names = ", ".join(job.space.baselines)
        raise BadInputError(
            f"'{text}' is not a setting", f"expected knob=value,…, the name of a study, or one of {baseline_names}"
        ) from error
    result = describe_study(record)
    if result.framework is not job.framework:
        raise BadInputError(
            f"study {record.name} is of {result.framework.title}, and this comparison of {job.framework.title}",
            f"add --framework {result.framework.name}",
        )
    advice = advice_of(result)
    extra = advice.setting.keys() - job.space.domains.keys()
    if extra:
        raise BadInputError(
            f"study {record.name} sets {', '.join(sorted(extra))}, which the search space '{job.space.name}' does not "
            "have",
            "use the --space of that study",
        )
    return job.space.reference.with_values(**advice.setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measurements of b against a, and the verdict."""

    a: ComparedSetting
    b: ComparedSetting
    test: SequentialTest
    """The rounds that were held, and what they say."""
    conditions: Conditions
    inputs: tuple[InputFacts, ...] = ()
    """What tftune feeds to the models."""
    workload_warnings: Sequence[MeasurementWarning] = ()
    own_advice: Mapping[str, str] = field(default_factory=dict)
    """What the device and the framework can do about warnings, by their codes."""
    limits: Limits = field(default_factory=Limits)
    variables: Collection[str] = frozenset()
    """The knobs that only variables take to a command."""
    began: str = field(default_factory=now)

    def to_dict(self) -> dict[str, object]:
        """Return what has to be kept of it."""
        return {
            "began": self.began,
            "node": node_name(),
            "contenders": _contenders(self.a, self.b),
            "rounds": self.test.rounds,
            "noise": PRIOR_NOISE,
            "conditions": self.conditions,
        }

    @property
    def verdict(self) -> Verdict:
        """Return what b runs at against a."""
        return self.test.verdicts()[A]


def compare(request: CompareRequest, events: ComparisonEvents) -> ComparisonResult:
    """Measure b against a; raises BadInputError before anything is measured."""
    checked = parse_request(request, stores=False)
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        job = prepare(checked)
        job.tell_notes(events.notice)
        for text in (request.a, request.b):
            parse_compared(text, job, request.storage)  # refused before a model is exported
        job = feasible(job, notify=events.notice)
        a, b = (parse_compared(text, job, request.storage) for text in (request.a, request.b))
        return describe(measure(job, a, b, margin=request.margin, events=events))


def measure(
    job: Job,
    a: ComparedSetting,
    b: ComparedSetting,
    *,
    margin: float = MARGIN,
    limits: Limits | None = None,
    events: ComparisonEvents,
) -> Comparison:
    """Run rounds with new processes of both settings until there is a verdict or the budget ends.

    A limit on p99 needs as many steps of b as decide it, as far as the time goes. The caller holds the right to
    measure.
    """
    first, second = (items_per_step(each) for each in (a, b))
    if job.objective.has_fixed_batch and first != second:
        raise BadInputError(
            f"--objective {job.objective} needs one batch size, got {first} and {second}",
            "give both settings the same batch_size",
        )
    command = job.workload.command
    if command is not None and first != second and "batch_size" not in command.placeholders:
        raise BadInputError(
            f"the command has no {{batch_size}} placeholder, and the settings have batch sizes {first} and {second}",
            "put {batch_size} at the place of the batch size, or give both settings the same batch_size",
        )
    job.device.check_idle()
    contenders = _contenders(a, b)
    began, countdown = now(), Countdown(total_s=job.budget.time_s)
    watch = job.device.watch(job.machine)
    with Servers(job, notify=events.notice) as servers:
        servers.search_launcher()  # it comes up while the model is exported
        launcher = job.launcher(notify=events.notice)
        replicas = servers.finals_launchers(contenders)
        rounds = Rounds(
            launcher=launcher,
            fork_launchers=replicas,
            plan=_plan(job, forks=bool(replicas)),
            rng=np.random.default_rng(),
            time=countdown,
            notify=events.notice,
        )
        limits = limits or Limits()
        sequential_test = SequentialTest(
            contenders=contenders,
            common=rounds,
            objective=job.objective,
            margin=margin,
            min_steps=0 if limits.p99_s is None else samples_needed(QUANTILES["p99"]),
        )
        sequential_test.run(
            lambda: events.looked(sequential_test.n_rounds, sequential_test.verdicts()[A], countdown.left_s())
        )
    conditions = job.seen.added_to(watch.conditions())
    check_ran(sequential_test.rounds)
    return Comparison(
        a=a,
        b=b,
        test=sequential_test,
        began=began,
        conditions=conditions,
        inputs=job.inputs,
        workload_warnings=job.workload_warnings,
        own_advice={**job.device.advice, **job.framework.advice},
        limits=limits,
        variables=set() if command is None else job.space.catalogue.by_variable(command.placeholders),
    )


def items_per_step(side: ComparedSetting) -> int:
    """Return the items of a step: of all processes together where these share it."""
    return side.deployment.shared_batch or side.setting.batch_size


def check_ran(rounds: Sequence[Round]) -> None:
    """Raise TunerError where neither of the two ever ran."""
    if not any(round_.slices for round_ in rounds):
        text = "; ".join(sorted(set(failures(rounds).values())))
        status = next((each for each in reversed(Status) if f"{each}: " in text), Status.FAILED)  # the most telling
        hint = last_hint(rounds, (A, B)) or way_out(status, text, otherwise=RUN_IT)
        raise TunerError(f"neither setting runs: {text}", hint)


def _contenders(a: ComparedSetting, b: ComparedSetting) -> list[Contender]:
    """Return both, the one that the verdict is on first."""
    return [
        Contender(names=(name,), setting=each.setting, deployment=each.deployment) for name, each in ((B, b), (A, a))
    ]


def _plan(job: Job, *, forks: bool) -> FinalsPlan:
    """Return the plan; of a command every run is a process of its own, so that nothing is gained by several a round."""
    passes = PASSES_FORKED if forks else PASSES_FRESH
    return FinalsPlan(
        slice_s=job.slice_s,
        n_parallel_starts=parallel_starts(job.machine),
        passes=passes if job.workload.command is None else 1,
    )


def describe(comparison: Comparison, *, acts: bool = False) -> ComparisonResult:
    """Return what is published of a comparison; `acts` if a study has shown that variables reach the program."""
    test, verdict = comparison.test, comparison.verdict
    rounds, objective = test.rounds, test.objective
    names, y = log_rates(rounds, test.contenders, objective)
    rates = {name: objective.shown(rate) for name, rate in adjusted_rates(names, y, A).items()}
    sides = {
        name: SideResult(
            asked=each.name,
            **applied(each.deployment),
            rate=rates.get(name),
            **structs.asdict(evidence.tail(rounds, name, items_per_step(each))),
        )
        for name, each in ((A, comparison.a), (B, comparison.b))
    }
    a, b = comparison.a.setting, comparison.b.setting
    by_variables = a.taking(comparison.variables, b)
    is_apart = by_variables != b  # in what arrives by words, which shows no variables
    at = evidence.common_text(a, [b.taking(comparison.variables, a)])
    is_unseen = by_variables != a and (verdict.code not in DIFFERENCES or (is_apart and not acts))
    is_paired = {A, B} <= {*names} and len(y) > 1 and not is_apart
    others = [(1, estimate(y[:, names.index(B)] - y[:, names.index(A)]))] if is_paired else []
    warnings = merge(
        comparison.workload_warnings,
        condition_warnings(comparison.conditions),
        evidence.round_warnings(rounds),
        evidence.number_warnings(rounds, objective, {each.setting.batch_size for each in test.contenders}),
        evidence.growing_warnings(rounds),
        evidence.unseen_warnings(others, 1, objective, at=at) if is_unseen else [],
        evidence.step_warnings(len(evidence.steps_of(rounds, B)), objective, comparison.limits),
    )
    return ComparisonResult(
        a=a.to_dict(),
        b=b.to_dict(),
        **fields_of(ComparisonResult, verdict),
        reason=_reason(test, verdict, warnings) if verdict.code is VerdictCode.UNDECIDED else None,
        margin=test.margin,
        level=test.levels.get(A),
        objective=objective,
        unit=evidence.unit_of(rounds, objective),
        rounds=test.n_rounds,
        fresh_rounds=sum(round_.fresh for round_ in rounds if not round_.interruptions),
        ended=test.end_reason,
        timed_s=round(sum(round_.timed_s for round_ in rounds), 3),
        sides=sides,
        failures={
            name: "; ".join(filter(None, (text, last_hint(rounds, (name,))))) for name, text in failures(rounds).items()
        },
        inputs=comparison.inputs,
        conditions=convert(comparison.conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning, comparison.own_advice) for warning in warnings),
    )


def _reason(test: SequentialTest, verdict: Verdict, warnings: Sequence[MeasurementWarning]) -> str:
    """Return why nothing could be decided."""
    if test.end_reason == "failed":
        return f"{' and '.join(sorted(failures(test.rounds)))} did not run"
    few_digits = [warning.observation for warning in warnings if warning.code is Code.FEW_DIGITS]
    if few_digits:
        return few_digits[0]
    blamed = [warning.observation for warning in warnings if warning.code in DISTURBING]
    if test.n_rounds <= MIN_ROUNDS:
        blamed.append(f"there was time for only {test.n_rounds} rounds: give a longer --time-budget")
    if blamed:
        return "; ".join(blamed)
    if verdict.speedup is None:
        return f"{test.n_rounds} rounds vary too much: use a quieter machine, or a longer --time-budget"
    return f"{test.n_rounds} rounds cannot show whether the difference matters: give a longer --time-budget"


# ---- the check of a study -------------------------------------------------------------------------------------------


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
    rounds = comparison.test.rounds
    for name, text in failures(rounds).items():
        if comparison.test.end_reason == "failed" or not any(name in round_.slices for round_ in rounds):
            what = "the default" if name == A else "the recommendation"
            raise TunerError(f"{what} {text}", last_hint(rounds, (name,)) or RUN_IT)
    with storage_errors():
        record.add("checks", comparison)
        record.put("updated", now())
    limit_statuses = evidence.limit_statuses(rounds, (A, B), stored.limits) if stored.limits else {}
    kept, is_own = record.attributes(), answer is described.same_latency
    study_sessions = of_setting(kept, recommended, same_latency=is_own)
    pooled = pooled_sessions(study_sessions, level=comparison.test.levels.get(A) or 0.95, margin=margin)
    return check_result(
        record.name,
        comparison,
        pooled,
        limit_statuses=limit_statuses,
        closest_s=closest_s(study_sessions),
        latency=latency_ratio(kept.checks[-1]) if request.same_latency else None,
        acts=all(each.code is not Code.UNSEEN for each in described.warnings),
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
    acts: bool = False,
) -> CheckResult:
    """Return the comparison of a study's recommendation with the default, and what all sessions say together.

    `limit_statuses` says whether the default (a) and the recommendation (b) keep to the study's limits, and `closest_s`
    is the time (s) between the two sessions that lie closest. With `latency`, a call may not be shown to take longer.
    `acts` is as of `describe`.
    """
    is_longer = latency is not None and latency.low > 1
    return CheckResult(
        **structs.asdict(describe(comparison, acts=acts)),
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
            checked = parse_request(
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
