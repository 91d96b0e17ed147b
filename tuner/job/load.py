"""Measure a study's settings under load: `tftune load`; and how many copies of them carry a load: `tftune size`.

The default and what the study recommends, of one process, of several and at the default's latency, answer requests of
one item at random times, in turns. The curves are kept with the study, and tell the number of copies.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from tuner.child.arrivals import PATIENCE
from tuner.errors import BadInputError, TunerError
from tuner.job.compare import again, default_deployment
from tuner.job.events import TaskEvents
from tuner.job.job import Job, fixed_batch_size
from tuner.job.parsed import positive
from tuner.job.request import LoadRequest, SizeRequest
from tuner.job.servers import Servers, parallel_starts
from tuner.machine.conditions import Conditions
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.group_sequential import ALPHA
from tuner.measure.load import LoadCandidate, LoadRound, round_s, run_round
from tuner.measure.objective import Objective
from tuner.measure.rounds import Contender
from tuner.measure.warning import condition_warnings
from tuner.quantity import MILLISECONDS, PER_SECOND, PERCENT, left_text, rate_text
from tuner.result.document import describe_study, no_finals
from tuner.result.load import LoadResult, SizeResult, SizeRow, curve_results, size_row, stored_load
from tuner.result.study import StudyResult, WarningResult
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.study.record import Record, now
from tuner.study.storage import all_records, check_storage, find, find_in, storage_errors, storage_with
from tuner.study.subject import Subject
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import WorkerLauncher
from tuner.trial.outcome import RUN_IT
from tuner.workload.pyfile import INFERENCE

MIN_ROUNDS = 2
_MAX_BATCH = 4096
_USUAL_BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured: complete rounds, and the failures of the round that ended them."""

    candidates: tuple[LoadCandidate, ...]
    rounds: list[LoadRound]
    failures: dict[str, str]
    conditions: Conditions


@storage_errors()
def load_study(request: LoadRequest, events: TaskEvents) -> LoadResult:
    """Measure a study's settings under load; raises BadInputError where that cannot be asked of it.

    The limit is that of the study, if no other is given.
    """
    limit_ms = None if request.max_p99_ms is None else positive(request.max_p99_ms, MILLISECONDS, "--max-p99")
    wait_ms = 0.0 if request.batch_wait_ms is None else MILLISECONDS.parse(request.batch_wait_ms, "--batch-wait")
    if not 0 <= wait_ms < 60_000:
        raise BadInputError(f"--batch-wait is {wait_ms:g} ms", "expected at least 0 and less than a minute, e.g. 5ms")
    if request.max_batch is not None and not 1 <= request.max_batch <= _MAX_BATCH:
        raise BadInputError(f"--max-batch is {request.max_batch}", f"expected 1 to {_MAX_BATCH}")
    record = find_in(request.storage, request.study)
    check_storage(request.storage)  # what is measured is to be kept there
    stored, study = record.attributes(), describe_study(record)
    is_searched = stored.objective is Objective.CAPACITY
    _refuse(study)
    if is_searched and "promising" not in stored.raw:
        raise no_finals(study)
    limit_s = stored.limits.p99_s if limit_ms is None else limit_ms / 1000
    settings = settings_of(study, stored.promising if is_searched else recommended_of(study))
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        spec = replace(stored.spec, rate=None)  # its requests have rates of their own
        batch_sizes = {each[1].batch_size for each in settings}
        job = again(stored, request, batch_sizes, events, spec=spec)
        sizes = _sizes(job, request.max_batch or largest_batch(study, batch_sizes))
        candidates = tuple(_candidate(job, *each, sizes=sizes, wait_s=wait_ms / 1000) for each in settings)
        measured = measure(job, candidates, job.budget.time_s, events)
    candidates = measured.candidates
    tunes = request.max_batch is None and request.batch_wait_ms is None
    level = 1 - ALPHA / max(1, len(settings) - 1) if is_searched else 1 - ALPHA  # the best of them is the answer
    results = curve_results(
        candidates, measured.rounds, limit_s=limit_s, margin=request.margin, tunes=tunes, level=level
    )
    warnings = condition_warnings(measured.conditions)
    result = LoadResult(
        study=record.name,
        workload=study.workload.name,
        item=job.workload.item,
        limit_ms=None if limit_s is None else 1000 * limit_s,
        curves=results,
        rounds=len(measured.rounds),
        timed_s=round(sum(each.timed_s for each in measured.rounds), 3),
        failures=measured.failures,
        measured_at=now(),
        conditions=measured.conditions,
        warnings=tuple(WarningResult.of(warning, job.device.advice) for warning in warnings),
    )
    _keep(record, result, measured)
    return result


def _refuse(study: StudyResult) -> None:
    """Raise BadInputError for a study whose settings cannot answer requests one by one."""
    if study.objective is Objective.CAPACITY:  # its search has refused all others, and has no finals
        return
    if study.recommended is None:
        raise no_finals(study)
    reasons = {
        "of a command, which takes no requests from tftune": study.framework.name == "command",
        "of training": study.workload.mode != INFERENCE,
        "of an ensemble, whose models answer together": bool(study.recommended.deployment.members),
        "of processes that share each batch": bool(study.recommended.deployment.shared_batch),
    }
    for reason, applies in reasons.items():
        if applies:
            raise BadInputError(f"study {study.study} is {reason}", "search the inference of one model, then load that")


def recommended_of(study: StudyResult) -> list[Contender]:
    """Return what each answer recommends."""
    advices = {of: answer.recommended for of, answer in study.answers.items()}
    return [
        Contender(names=(of,), setting=Setting.of(advice.setting), deployment=advice.deployment)
        for of, advice in advices.items()
    ]


def settings_of(study: StudyResult, chosen: Sequence[Contender]) -> list[tuple[str, Setting, Deployment | None]]:
    """Return the default and what was chosen, each with its name; the default has what applies it from the job."""
    settings: list[tuple[str, Setting, Deployment | None]] = [
        (study.default, Setting.of(study.baselines[study.default].setting), None)
    ]
    for each in chosen:
        others = [own.without("batch_size") for _, own, _ in settings]  # its batches are those of the load
        if each.setting.without("batch_size") not in others:
            settings.append((each.names[0], each.setting, each.deployment))
    return settings


def largest_batch(study: StudyResult, batch_sizes: Collection[int]) -> int:
    """Return how many requests a batch has at most: the usual, or as many as were asked for in a search for capacity.

    `batch_sizes` are the settings' own.
    """
    is_asked = study.batch_sizes or "batch_size" in (study.pins or {})
    if study.objective is Objective.CAPACITY and is_asked:
        return max(int(size) for size in study.knobs["batch_size"].values)
    return max(_USUAL_BATCH, *batch_sizes)


def _sizes(job: Job, most: int) -> tuple[int, ...]:
    """Return the sizes that batches are run in: powers of two, and `most`; of a fixed batch that alone."""
    fixed = {size for described in job.described_inputs() if (size := fixed_batch_size(described)) is not None}
    return tuple(fixed) or (*(2**i for i in range(most.bit_length()) if 2**i < most), most)


def _candidate(
    job: Job, name: str, setting: Setting, deployment: Deployment | None, *, sizes: tuple[int, ...], wait_s: float
) -> LoadCandidate:
    """Return a setting with its batches."""
    return LoadCandidate(
        name=name,
        setting=setting.with_values(batch_size=sizes[-1]),
        deployment=default_deployment(job, setting) if deployment is None else deployment,
        sizes=sizes,
        wait_s=wait_s,
    )


def measure(job: Job, candidates: Sequence[LoadCandidate], time_s: float | None, events: TaskEvents) -> Measured:
    """Run rounds until the time ends, two at least; the caller holds the right to measure."""
    job.device.check_idle()
    countdown, watch, rng = Countdown(total_s=time_s), job.device.watch(job.machine), np.random.default_rng()
    saturation: dict[str, float] = {}
    rounds: list[LoadRound] = []
    failures: dict[str, str] = {}
    contenders = [
        Contender(names=(each.name,), setting=each.setting, deployment=each.deployment) for each in candidates
    ]
    with Servers(job, notify=events.notice) as servers:
        servers.search_launcher()
        job.export(notify=events.notice)
        fresh = FreshLauncher(target=job.target())
        forks = servers.finals_launchers(contenders)
        for number in count():
            began_s = countdown.left_s()
            launcher: WorkerLauncher = forks[number % len(forks)]() if forks else fresh
            done = run_round(
                candidates,
                launcher,
                saturation,
                rng,
                number=number,
                n_parallel_starts=parallel_starts(job.machine),
                most_s=job.deadline_s / (2 * PATIENCE),  # a process that falls behind still answers in time
            )
            if done.failures:
                failures |= {name: str(failure) for name, failure in done.failures.items()}
                if rounds:
                    break
                default, *others = candidates
                left = [each for each in others if each.name not in failures]
                if default.name in failures or not left:
                    raise _failed(done)
                candidates = [default, *left]  # these can still be compared
                continue
            rounds += [] if done.interrupted else [done]
            rates = ", ".join(f"{name} {rate_text(rate)}/s" for name, rate in saturation.items())
            at_most = "" if number else f"; at most: {rates}"
            events.progress(f"round {number + 1}{left_text(countdown.left_s())}{at_most}")
            took_s = began_s - countdown.left_s()
            if len(rounds) >= MIN_ROUNDS and countdown.left_s() < max(took_s, round_s(candidates, saturation)):
                break
    conditions = job.seen.added_to(watch.conditions())
    return Measured(candidates=tuple(candidates), rounds=rounds, failures=failures, conditions=conditions)


def _failed(done: LoadRound) -> TunerError:
    """Return the error of a first round in which a candidate failed: nothing is left to compare the others with."""
    name, failure = next(iter(done.failures.items()))
    return TunerError(f"{name} under load: {failure}", failure.hint or RUN_IT)


def _keep(record: Record, result: LoadResult, measured: Measured) -> None:
    """Store what was measured, and what it comes to."""
    raw = {"candidates": measured.candidates, "rounds": measured.rounds}
    with storage_errors():
        record.add("loads", {"result": result, "measured": raw})
        record.put("updated", now())


# ---- how many copies carry a load -----------------------------------------------------------------------------------

_MOST_HEADROOM = 10.0


@storage_errors()
def size(request: SizeRequest) -> SizeResult:
    """Return how many copies of each setting carry a load, on all machines whose studies have curves of that workload.

    Raises BadInputError for what cannot be asked, and where no study of the workload has a curve.
    """
    rate = positive(request.rate, PER_SECOND, "--rate")
    limit_ms = positive(request.max_p99_ms, MILLISECONDS, "--max-p99")
    headroom = PERCENT.parse(request.headroom, "--headroom") / 100
    if not 0 <= headroom <= _MOST_HEADROOM:
        raise BadInputError(f"--headroom is {request.headroom}", "expected a percentage of at least 0, e.g. 20%")
    costs = _costs(request.costs)
    storage = storage_with(request.storage, request.study)
    named = find(storage, request.study)
    subject = named.attributes().subject
    rows: list[SizeRow] = []
    loads: list[LoadResult] = []
    for record in all_records(storage):
        load = _load_of(record, subject)
        if load is None:
            continue
        loads.append(load)
        machine = record.attributes().subject.machine
        cpus = min(machine.cpu_quota or machine.logical_cpus, machine.logical_cpus)
        cost = costs.get(record.name, costs.get(machine.id))
        row = functools.partial(size_row, load, machine=machine.id, cpus=cpus, cost=cost)
        rows += [row(curve, rate=rate, limit_ms=limit_ms, headroom=headroom) for curve in load.curves]
    if not loads:
        raise BadInputError(
            f"no study of {subject.workload.name} was measured under load",
            f"tftune load {named.name} --max-p99 {limit_ms:g}ms",
        )
    unknown = costs.keys() - {row.study for row in rows} - {row.machine for row in rows}
    if unknown:
        known = ", ".join(dict.fromkeys(name for row in rows for name in (row.machine, row.study)))
        raise BadInputError(f"--cost names {min(unknown)}", f"expected a machine or a study of: {known}")
    rows.sort(key=lambda row: (row.copies is None, row.cost is None, row.cost or 0.0, row.total_cpus))
    return SizeResult(
        workload=subject.workload.name,
        item=loads[-1].item,
        rate=rate,
        limit_ms=limit_ms,
        headroom=headroom,
        rows=tuple(rows),
    )


def _load_of(record: Record, subject: Subject) -> LoadResult | None:
    """Return the load curves of a study of that workload, None of others."""
    if record.get("loads") is None:
        return None
    own = record.attributes().subject.workload
    is_same = (own.name, own.mode, own.params) == (
        subject.workload.name,
        subject.workload.mode,
        subject.workload.params,
    )
    return stored_load(record) if is_same else None


def _costs(texts: Sequence[str]) -> Mapping[str, float]:
    """Return the cost of a copy on each machine, or of each study; raises BadInputError."""
    costs = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        try:
            costs[name] = float(amount)
        except ValueError:
            raise BadInputError(
                f"--cost {text}", "expected MACHINE=AMOUNT or STUDY=AMOUNT, e.g. c5.xlarge=0.17"
            ) from None
        if not name or not costs[name] > 0:
            raise BadInputError(f"--cost {text}", "expected a name, and an amount above 0")
    return costs
