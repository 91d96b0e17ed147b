"""Compare two settings: `tftune compare` and `tftune check`.

Both are finals of two: rounds of new processes, each process timed in turns with the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import convert, structs

from tuner.errors import BadInputError, TunerError, UnknownNameError, unknown_name
from tuner.job.events import ComparisonEvents
from tuner.job.job import Job, feasible, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import CompareRequest
from tuner.job.servers import Servers, parallel_starts
from tuner.machine.conditions import Conditions
from tuner.machine.host import node_name
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.constraint import Limits
from tuner.measure.group_sequential import MIN_ROUNDS, SequentialTest
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import adjusted_rates, failures, last_hint, log_rates
from tuner.measure.rounds import Contender, Round, Rounds
from tuner.measure.warning import DISTURBING, Code, MeasurementWarning, condition_warnings, merge
from tuner.result import evidence
from tuner.result.comparison import ComparisonResult, SideResult
from tuner.result.document import advice_of, describe_study
from tuner.result.study import WarningResult, applied
from tuner.space.carrier import Preload
from tuner.space.deployment import Deployment
from tuner.space.groups import INSTANCES, batch_total
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.stats.equivalence import DIFFERENCES, MARGIN, Verdict, VerdictCode
from tuner.stats.estimate import estimate
from tuner.stats.noise import PRIOR_NOISE
from tuner.stats.tail import QUANTILES, samples_needed
from tuner.study.record import now
from tuner.study.storage import LAST, find, no_study, open_storage, storage_errors
from tuner.trial.outcome import RUN_IT, Status, way_out
from tuner.workload.feed import InputFacts

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
    objective: Objective
    rounds: list[Round]
    n_rounds: int
    """How many of them count."""
    margin: float
    level: float | None
    """Of the interval after the last look; None where there was none."""
    verdict: Verdict
    ended: str
    conditions: Conditions
    failures: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    """What to do about failures, of those where that is known."""
    inputs: tuple[InputFacts, ...] = ()
    """What tftune feeds to the models."""
    input_warnings: Sequence[MeasurementWarning] = ()
    device_advice: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    began: str = field(default_factory=now)

    def to_dict(self) -> dict[str, object]:
        """Return what has to be kept of it."""
        return {
            "began": self.began,
            "node": node_name(),
            "contenders": _contenders(self.a, self.b),
            "rounds": self.rounds,
            "noise": PRIOR_NOISE,
            "conditions": self.conditions,
        }

    @property
    def timed_s(self) -> float:
        """Return the time spent inside slices."""
        return sum(round_.timed_s for round_ in self.rounds)


def compare(request: CompareRequest, events: ComparisonEvents) -> Comparison:
    """Measure b against a; raises BadInputError before anything is measured."""
    checked = parse_request(request, stores=False)
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        job = prepare(checked)
        job.tell_notes(events.notice)
        for text in (request.a, request.b):
            parse_compared(text, job, request.storage)  # refused before a model is exported
        job = feasible(job, notify=events.notice)
        a, b = (parse_compared(text, job, request.storage) for text in (request.a, request.b))
        return measure(job, a, b, margin=request.margin, events=events)


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
        objective=job.objective,
        rounds=sequential_test.rounds,
        n_rounds=sequential_test.n_rounds,
        margin=margin,
        level=sequential_test.levels.get(A),
        verdict=sequential_test.verdicts()[A],
        ended=sequential_test.end_reason,
        began=began,
        conditions=conditions,
        failures=failures(sequential_test.rounds),
        hints={name: text for name in (A, B) if (text := last_hint(sequential_test.rounds, (name,)))},
        inputs=job.inputs,
        input_warnings=job.input_warnings,
        device_advice=job.device.advice,
        limits=limits,
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


def describe(comparison: Comparison) -> ComparisonResult:
    """Return what is published of a comparison."""
    names, y = log_rates(comparison.rounds, _contenders(comparison.a, comparison.b), comparison.objective)
    rates = {name: comparison.objective.shown(rate) for name, rate in adjusted_rates(names, y, A).items()}
    sides = {
        name: SideResult(
            asked=each.name,
            **applied(each.deployment),
            rate=rates.get(name),
            **structs.asdict(evidence.tail(comparison.rounds, name, items_per_step(each))),
        )
        for name, each in ((A, comparison.a), (B, comparison.b))
    }
    is_unseen = comparison.verdict.code not in DIFFERENCES and comparison.a.setting != comparison.b.setting
    others = [(1, estimate(y[:, names.index(B)] - y[:, names.index(A)]))] if {A, B} <= {*names} and len(y) > 1 else []
    warnings = merge(
        comparison.input_warnings,
        condition_warnings(comparison.conditions),
        evidence.round_warnings(comparison.rounds),
        evidence.number_warnings(
            comparison.rounds, comparison.objective, {each.setting.batch_size for each in (comparison.a, comparison.b)}
        ),
        evidence.unseen_warnings(others, 1, comparison.objective) if is_unseen else [],
        evidence.step_warnings(len(evidence.steps_of(comparison.rounds, B)), comparison.objective, comparison.limits),
    )
    return ComparisonResult(
        a=comparison.a.setting.to_dict(),
        b=comparison.b.setting.to_dict(),
        speedup=comparison.verdict.speedup,
        low=comparison.verdict.low,
        high=comparison.verdict.high,
        code=comparison.verdict.code,
        reason=_reason(comparison, warnings) if comparison.verdict.code is VerdictCode.UNDECIDED else None,
        margin=comparison.margin,
        level=comparison.level,
        objective=comparison.objective,
        unit=evidence.unit_of(comparison.rounds, comparison.objective),
        rounds=comparison.n_rounds,
        fresh_rounds=sum(round_.fresh for round_ in comparison.rounds if not round_.interruptions),
        ended=comparison.ended,
        timed_s=round(comparison.timed_s, 3),
        sides=sides,
        failures={
            name: f"{text}; {comparison.hints[name]}" if name in comparison.hints else text
            for name, text in comparison.failures.items()
        },
        inputs=comparison.inputs,
        conditions=convert(comparison.conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning, comparison.device_advice) for warning in warnings),
    )


def _reason(comparison: Comparison, warnings: Sequence[MeasurementWarning]) -> str:
    """Return why nothing could be decided."""
    if comparison.ended == "failed":
        return f"{' and '.join(sorted(comparison.failures))} did not run"
    few_digits = [warning.observation for warning in warnings if warning.code is Code.FEW_DIGITS]
    if few_digits:
        return few_digits[0]
    blamed = [warning.observation for warning in warnings if warning.code in DISTURBING]
    if comparison.n_rounds <= MIN_ROUNDS:
        blamed.append(f"there was time for only {comparison.n_rounds} rounds: give a longer --time-budget")
    if blamed:
        return "; ".join(blamed)
    if comparison.verdict.speedup is None:
        return f"{comparison.n_rounds} rounds vary too much: use a quieter machine, or a longer --time-budget"
    return f"{comparison.n_rounds} rounds cannot show whether the difference matters: give a longer --time-budget"
