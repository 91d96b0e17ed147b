"""Measure a study's settings under load: `tftune load`.

The default and what the study recommends, of one process, of several and at the default's latency, answer requests of
one item at random times, in turns. The curves are kept with the study.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from tuner.child.arrivals import PATIENCE
from tuner.errors import BadInputError, TunerError
from tuner.job.check import again, default_deployment
from tuner.job.events import TaskEvents
from tuner.job.feed import fixed_batch_size
from tuner.job.job import Job
from tuner.job.parsed import positive
from tuner.job.request import LoadRequest
from tuner.job.servers import Servers, parallel_starts
from tuner.machine.conditions import Conditions
from tuner.machine.locks import machine_lock
from tuner.measure.budget import Countdown
from tuner.measure.group_sequential import ALPHA
from tuner.measure.load import LoadCandidate, LoadRound, round_s, run_round
from tuner.measure.objective import Objective
from tuner.measure.rounds import Contender
from tuner.measure.warning import condition_warnings
from tuner.quantity import MILLISECONDS, left_text, rate_text
from tuner.result.document import describe_study, no_finals
from tuner.result.load import LoadResult, curve_results
from tuner.result.study import StudyResult, WarningResult
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.study.record import Record, now
from tuner.study.storage import check_storage, find_in, storage_errors
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
