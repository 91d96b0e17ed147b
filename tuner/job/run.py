"""Running a search, and its later sessions: the only place where machine, storage and study meet.

Before it tries anything, a search may predict what to expect: from a profile, and the model of the machine. Of several
sessions the first searches, and each of the others measures again what it recommends.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tuner.devices.registry import DEFAULT as DEFAULT_DEVICE
from tuner.errors import BadInputError, TunerError
from tuner.job.advise import as_hints, hints
from tuner.job.compare import check_study
from tuner.job.events import ProfileEvents, SearchEvents
from tuner.job.job import Job, feasible, prepare
from tuner.job.load import load_study
from tuner.job.overhead import known_overhead, known_overheads, with_overhead
from tuner.job.parsed import ParsedRequest, parse_request
from tuner.job.predict import Capture, cached_capture, model_of, new_capture, profiled_sizes, quick_capture
from tuner.job.profile import check_profiled
from tuner.job.request import CheckRequest, LoadRequest, SearchRequest
from tuner.job.servers import Servers, free_memory_bytes, parallel_starts
from tuner.machine.host import node_name
from tuner.machine.locks import machine_lock
from tuner.measure.budget import PREDICTIONS, parse_duration, share_s
from tuner.measure.load import SHARES, duration_s
from tuner.measure.objective import Objective
from tuner.measure.planning import SLICE_S, FinalsPlan
from tuner.measure.rounds import Contender
from tuner.model.capacity import CapacityScore, most_promising, rates_of
from tuner.model.graph import Features
from tuner.model.prediction import PredictedRatio
from tuner.plain import to_plain
from tuner.quantity import duration_text, rate_text
from tuner.result.comparison import CheckResult
from tuner.result.document import describe_study
from tuner.result.model import search_line
from tuner.result.study import AT_SAME_LATENCY, ONE, SEVERAL, StudyResult
from tuner.space.design import design
from tuner.space.groups import is_group
from tuner.space.setting import Setting
from tuner.study.attributes import MEASURED, Prediction
from tuner.study.lattice import thinned
from tuner.study.loop import Search
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.record import SCHEMA, Record, now
from tuner.study.sampler import LatticeSampler
from tuner.study.storage import create_or_continue, find_in, open_storage, storage_errors
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher
from tuner.trial.running import CommandLauncher

_ENERGY_BLOCKS = 4  # of the calibration, where slices are long
PREDICTED = "predicted"
_INTERRUPTED = "interrupted; all finished trials are saved, run the same command to continue"
_N_GROUPS = 3  # settings of several processes that a search tries
_MOST_LOADED = 3  # settings beside the default that are measured under load
_LOAD_ROUNDS = 3  # that there should be time for, starts included; two are the least


def run(request: SearchRequest, events: SearchEvents) -> tuple[Record | None, bool]:
    """Run a search, and where it is for capacity, measure what it chose under load.

    Returns its record and whether it was interrupted.
    """
    checked = parse_request(request)
    record, interrupted = _search(request, checked, events)
    if record is None or interrupted or checked.objective is not Objective.CAPACITY:
        return record, interrupted
    runs, total_s = record.attributes().runs, checked.budget.time_s
    loaded = LoadRequest(
        study=record.name, storage=request.storage, python=request.python, margin=request.margin, wait=True
    )
    if total_s is not None:
        loaded = replace(loaded, time_budget=f"{max(total_s - runs[-1].wall_s, 1.0):.0f}s")
    try:
        load_study(loaded, events)
    except KeyboardInterrupt:
        events.notice(_INTERRUPTED)
        return record, True
    return record, False


def _search(request: SearchRequest, checked: ParsedRequest, events: SearchEvents) -> tuple[Record | None, bool]:
    """Search; returns the record and whether it was interrupted."""
    record: Record | None = None
    try:
        with (
            storage_errors(),
            machine_lock(wait=request.wait, on_wait=events.waiting),
            contextlib.ExitStack() as cleanup,
        ):
            began_s = time.monotonic()  # a queue before this does not count
            job = prepare(checked)
            job.device.check_idle()
            events.prepared(job)
            job.tell_notes(events.notice)
            job = feasible(job, notify=events.notice)
            profile_kind = kind_of(job)
            servers = None
            if request.launcher == "fork":
                servers = cleanup.enter_context(Servers(job, notify=events.notice))
            forks = None if servers is None else servers.search_launcher()  # it comes up while the model is exported
            fresh = job.launcher(notify=events.notice)
            launcher: Launcher = forks or fresh
            prior = None
            if profile_kind is not None:  # before anything else runs: it is timed
                assert isinstance(fresh, FreshLauncher)  # of a command nothing is predicted
                prior = prior_of(job, profile_kind, forks or fresh, events)
            overheads = known_overheads(job)
            overhead = known_overhead(job, overheads)
            features = with_overhead(job.features(), overhead)
            events.workload_described(
                job, features, fresh.typical_run.elapsed_s if isinstance(fresh, CommandLauncher) else None
            )
            if overhead is not None:
                events.notice(search_line(overhead, overheads))
            storage = open_storage(checked.storage_url, create=True)
            assert storage is not None  # create=True
            predicted = {} if prior is None else as_hints(job, {PREDICTED: prior.best(job.space.points)})
            hinted = predicted | hints(job, features, notify=events.notice)
            score = _score(job)
            # The runs of a command are long and few. What was asked for comes before what the framework proposes.
            asked = job.space.at_batch_sizes((checked.batch_sizes or ()) if job.workload.command else ())
            sampler = LatticeSampler(
                job.space,
                seed=request.seed,
                limits=checked.limits,
                initial_design=[*hinted.values(), *asked, *job.framework.initial_design(job.space)],
                prior_mean=prior,
                memory_ends_batches=job.device.kind != DEFAULT_DEVICE,
                score=score or list,
            )
            record = create_or_continue(storage, job.study_stem(request.seed), sampler, new=request.new)
            _store_request(record, job, checked, request, features)
            record.put("hints", hinted)
            if prior is not None:
                _store_prediction(record, prior, job, trust=None)
            listener = events.study_started(record, job, hinted)
            plan = _plan(job, fresh, margin=request.margin, same_latency=checked.same_latency)
            if job.planned:
                plan = plan.planned(design(job.space, job.machine, hinted.values()))
            watch = job.device.watch(job.machine)
            try:
                Search(
                    record=record,
                    space=job.space,
                    launcher=launcher,
                    finals_launcher=fresh,
                    fork_launchers=(lambda _: ()) if servers is None else servers.finals_launchers,
                    sampler=sampler,
                    plan=replace(plan, score=score),
                    budget=checked.budget,
                    events=listener,
                    seed=request.seed,
                    began_s=began_s,
                ).run()
            finally:
                events.study_ended()
                conditions = job.seen.added_to(watch.conditions())
                record.add("conditions", conditions)
                record.put("outputs", job.seen_outputs)
                if prior is not None:
                    _store_prediction(record, prior, job, trust=sampler.trust(record.study))
            if score is not None:
                elapsed_s, total_s = time.monotonic() - began_s, checked.budget.time_s
                _choose(record, job, score, math.inf if total_s is None else total_s - elapsed_s, events)
            if conditions.device is not None and conditions.device.lost:
                raise TunerError(
                    f"{job.device.name} cannot be read any more: {conditions.device.lost}",
                    "all earlier measurements are kept; see dmesg, then run the same command again",
                )
    except KeyboardInterrupt:
        events.notice(_INTERRUPTED)
        return record, True
    return record, False


def _store_prediction(record: Record, prior: PredictedRatio, job: Job, *, trust: float | None) -> None:
    """Keep what the model expects of the trials so far; of a study that goes on, it is what the first run expected."""
    earlier, trials = record.attributes().prediction, record.trials()
    best = prior.best(job.space.points) if earlier is None else Setting.of(earlier.best)
    n_before = len(trials) if earlier is None else earlier.n_before
    log_ratios = prior([trial.setting for trial in trials]).tolist() if trials else []
    prediction = Prediction(
        best=best.to_dict(),
        best_log_ratio=float(prior([best])[0]) if earlier is None else earlier.best_log_ratio,
        n_before=n_before,
        log_ratios=tuple((trial.number, value) for trial, value in zip(trials, log_ratios, strict=True))[n_before:],
        trust=trust,
    )
    record.put("prediction", prediction)


def _score(job: Job) -> CapacityScore | None:
    """Return what settings are chosen by, None where it is what their trials measure."""
    if job.objective is not Objective.CAPACITY or job.limits.p99_s is None:
        return None
    return CapacityScore(limit_s=job.limits.p99_s, default=job.space.reference)


def _choose(record: Record, job: Job, score: CapacityScore, left_s: float, events: SearchEvents) -> None:
    """Keep what is to be measured under load: what promises to carry most, as much of it as there is time for."""
    trials = [*record.trials(), *record.groups()]
    rates = rates_of(trials)
    of_default = [rates[t.number] for t in trials if t.setting == score.default and t.number in rates]
    usual = max(of_default or rates.values())
    each_s = sum(duration_s(share * usual, usual, 1) for share in SHARES)
    most = min(_MOST_LOADED, max(1, int(left_s / (_LOAD_ROUNDS * each_s)) - 1)) if left_s < math.inf else _MOST_LOADED
    chosen = most_promising(trials, score, most)
    names: list[str] = []
    for trial in chosen:
        kind = SEVERAL if is_group(trial.setting) else ONE
        n_alike = sum(name.startswith(kind) for name in names)
        names.append(f"{kind} {n_alike + 1}" if n_alike else kind)
    contenders = [
        Contender(names=(name,), setting=trial.setting, deployment=job.space.deployment(trial.setting))
        for name, trial in zip(names, chosen, strict=True)
    ]
    record.put("promising", contenders)
    simulated = [
        f"{name} ({rate_text(score.capacity(trial, rates[trial.number]))} requests/s simulated)"
        for name, trial in zip(names, chosen, strict=True)
    ]
    events.notice(f"under load next: {', '.join([job.space.default, *simulated])}")


def _plan(job: Job, launcher: FreshLauncher | CommandLauncher, *, margin: float, same_latency: bool) -> Plan:
    """Return how a job is measured, whose fresh processes come from a launcher."""
    usual, of_model = EvaluatorPlan(), isinstance(launcher, FreshLauncher)
    parallel = parallel_starts(job.machine)
    return Plan(
        evaluation=EvaluatorPlan(
            objective=job.objective,
            limits=job.limits,
            slice_s=job.slice_s,
            max_slices_s=_max_slices_s(launcher, job),
            n_together=max(parallel, usual.n_together),
            n_parallel_starts=parallel,
            # A command starts again for every slice, so blocks are expensive.
            calibration_s=max(usual.calibration_s, _ENERGY_BLOCKS * 4 * job.energy_slice_s),
            calibration_passes=usual.calibration_passes if of_model else 2,
            n_live=usual.n_live if of_model else 0,
            warm_up_steps=usual.warm_up_steps if of_model else 0,
            # Of a command nothing is resident between two slices.
            free_memory_bytes=lambda: free_memory_bytes(job) if of_model else None,
        ),
        finals=FinalsPlan(n_parallel_starts=parallel, slice_s=job.slice_s),
        margin=margin,
        n_groups=_N_GROUPS,
        same_latency=same_latency,
    )


def _max_slices_s(launcher: FreshLauncher | CommandLauncher, job: Job) -> float:
    """Return how long the slices of a trial may take: as many of a model as are worth it, but three passes of runs.

    And two passes of requests, or of energy, whose slices are long.
    """
    usual_s = EvaluatorPlan().max_slices_s
    if job.slice_s > SLICE_S:
        return max(usual_s, 4 * job.slice_s)
    return usual_s if isinstance(launcher, FreshLauncher) else max(usual_s, 6 * launcher.typical_run.elapsed_s)


def _store_request(
    record: Record, job: Job, checked: ParsedRequest, request: SearchRequest, features: Features | None
) -> None:
    """Put into the record what the study is, once, and when it was last touched."""
    if record.get("schema") is None:
        record.put("objective", job.objective)
        record.put("limits", checked.limits)
        record.put("asked", to_plain(request.workload) | {"folder": str(Path.cwd())})
        record.put("features", features)
        record.put("python", str(job.python))
        record.put("trial_timeout", request.trial_timeout)
        record.put("seed", request.seed)
        record.put("origin", MEASURED)
        record.put("why_no_energy", job.device.why_no_energy())
        record.put("numerics", request.numerics)
        if request.planned:
            record.put("planned", True)
        record.put("pins", checked.pins)
        record.put("batch_sizes", checked.batch_sizes)
        record.put("described", job.subject)
        record.put("batch_note", job.batch_note)
        record.put("created", now())
        record.put("schema", SCHEMA)
    record.put("command", request.command)  # of the last run, which the finals are of
    record.put("doubts", job.doubts)
    record.put("updated", now())


# ---- sessions at other times ----------------------------------------------------------------------------------------

DEFAULT_EVERY = "2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """How many sessions there are to be, and how long (s) after one the next begins."""

    n: int = 1
    every_s: float = 0.0


def make_sessions(n: int, every: str | None) -> SessionPlan:
    """Return the sessions of the two options; raises BadInputError."""
    if n < 1:
        raise BadInputError(f"--sessions is {n}", "expected 1 or more")
    if every is not None and n < 2:
        raise BadInputError(f"--every {every} needs more than one session", "add --sessions 2 or more")
    return SessionPlan(n=n, every_s=parse_duration(every or DEFAULT_EVERY, option="--every"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsResult:
    """What came of the sessions: the study, whether they were interrupted, and whether one after the first failed."""

    record: Record | None
    interrupted: bool
    failed: bool = False


def run_sessions(
    request: SearchRequest,
    sessions: SessionPlan,
    events: SearchEvents,
    *,
    after_first: Callable[[Record], None] = lambda _: None,
) -> SessionsResult:
    """Search, then check in the other sessions what was found.

    `after_first` is called with what the search found, where other sessions follow: they may be hours away. Between two
    sessions nothing is held: others may measure on this machine. A session that fails does not end the others.
    """
    if sessions.n > 1 and request.objective == Objective.CAPACITY:
        raise BadInputError(
            f"--sessions {sessions.n} with --objective {Objective.CAPACITY}",
            "leave --sessions out; tftune load measures its answer again at another time",
        )
    began_s = time.monotonic()
    record, interrupted = run(request, events)
    if sessions.n == 1 or record is None or interrupted:
        return SessionsResult(record=record, interrupted=interrupted)
    after_first(record)
    failed = False
    check = CheckRequest(
        study=record.name,
        python=request.python,
        storage=request.storage,
        margin=request.margin,
        trial_timeout=request.trial_timeout,
        wait=True,
    )
    for number in range(2, sessions.n + 1):
        answers = answers_to_check(describe_study(record))
        if not answers:
            events.notice("the study recommends the default: there is nothing to measure again")
            break
        left_s = max(0.0, began_s + (number - 1) * sessions.every_s - time.monotonic())
        events.notice(
            f"session {number} of {sessions.n} starts in {duration_text(left_s)}; press Ctrl-C to stop here (`tftune "
            f"check {shlex.quote(record.name)}` adds a session later)"
        )
        try:
            time.sleep(left_s)
            for of in answers:
                check_again(check, events, of=of)
        except KeyboardInterrupt:
            return SessionsResult(record=record, interrupted=True, failed=failed)
        except TunerError as error:
            failed = True
            events.session_failed(number, error)
            if isinstance(error, BadInputError):
                break  # what is another machine or workload now stays so
    return SessionsResult(record=record, interrupted=False, failed=failed)


def check_on_node(check: CheckRequest, events: SearchEvents) -> StudyResult:
    """Add a session on this node of a cluster with each answer of a study that has none here; return the study."""
    record = find_in(check.storage, check.study)
    study = describe_study(record)
    for of in answers_to_check(study):
        if node_name() not in {session.node for session in study.answers[of].recommended.sessions}:
            check_again(check, events, of=of)
    return describe_study(record)


def answers_to_check(study: StudyResult) -> list[str]:
    """Return which answers are something else than the default."""
    return [of for of, answer in study.answers.items() if answer.finals.advice.source != study.default]


def check_again(check: CheckRequest, events: SearchEvents, *, of: str) -> None:
    """Add a session with one of the study's answers."""
    is_latency = of == AT_SAME_LATENCY
    asked = replace(check, instances=None if is_latency else of == SEVERAL, same_latency=is_latency)
    result = check_study(asked, events)
    if isinstance(result, CheckResult):
        events.session_ended(result)


# ---- predictions that a search begins with --------------------------------------------------------------------------

PROFILE_S, QUICK_S = 60.0, 10.0
"""About what a thorough profile takes (s) on few CPUs, and a quick one."""
LEAST_POINTS = 13
"""Of fewer settings a search tries all anyway."""
MANY_CORES = 8
"""From so many on a search begins with a quick profile."""
OPTION = "--predict"


class ProfileKind(StrEnum):
    """How much a search measures of the operators before it begins."""

    QUICK = "quick"
    THOROUGH = "thorough"


def kind_of(job: Job) -> ProfileKind | None:
    """Return which profile a search makes for its model, None where it does without one.

    A thorough profile is for searches of which it takes a tenth of the time, and for those without an end. Otherwise a
    quick one is for searches that were told to predict, and for machines with many cores. Raises BadInputError where a
    search was told to, and nothing can be predicted of the job.
    """
    if job.predict is False:
        return None
    try:
        _check(job)
    except BadInputError as error:
        if job.predict:
            raise BadInputError(f"{OPTION}: {error.message}", f"leave {OPTION} out") from error
        return None
    most_s = share_s(job.budget.time_s, PREDICTIONS)
    if job.predict:
        return ProfileKind.THOROUGH if most_s >= PROFILE_S else ProfileKind.QUICK
    if len(job.space.points) < LEAST_POINTS:
        return None
    if PROFILE_S <= most_s < math.inf:
        return ProfileKind.THOROUGH
    return ProfileKind.QUICK if job.machine.usable_cores >= MANY_CORES and most_s >= QUICK_S else None


def prior_of(
    job: Job, kind: ProfileKind, launcher: FreshLauncher | ForkLauncher, events: ProfileEvents
) -> PredictedRatio | None:
    """Return what the model of the machine expects of the settings of a job, from its profile, which may be a new one.

    A quick profile has its processes from the `launcher`. The workload has to be exported, and the lock of the machine
    to be held; nothing else may run. None where that fails, or takes more than a tenth of the time, and nobody has told
    the search to: `events` are told why. Raises BadInputError where somebody has.
    """
    try:
        predictor, hardware = model_of(_capture(job, kind, launcher, events))
    except (TunerError, OSError) as error:
        if job.predict:
            raise
        why = error.message if isinstance(error, TunerError) else error
        events.notice(f"the search goes on without predictions: {why}")
        return None
    ratio = PredictedRatio(predictor=predictor, machine=job.machine, hardware=hardware, reference=job.space.reference)
    most_s = share_s(job.budget.time_s, PREDICTIONS)
    if not job.predict and most_s < math.inf:
        points = job.space.points
        began_s = time.monotonic()
        ratio([job.space.reference, points[len(points) // 2]])
        all_s = (time.monotonic() - began_s) / 2 * len(thinned(len(points)))
        if all_s > most_s:
            events.notice(
                f"the search goes on without predictions: they would take {all_s:.0f} s, more than a tenth of the time "
                f"({OPTION} runs them anyway)"
            )
            return None
    return ratio


def _check(job: Job) -> None:
    """Raise BadInputError for a job of which nothing can be predicted."""
    check_profiled(job)
    if job.objective is not Objective.THROUGHPUT:
        raise BadInputError(f"only throughput is predicted, and the objective is {job.objective}", "")


def _capture(job: Job, kind: ProfileKind, launcher: FreshLauncher | ForkLauncher, events: ProfileEvents) -> Capture:
    """Return the profiles to predict from, of the cache or new ones; a thorough one is preferred."""
    batch_sizes, is_quick = profiled_sizes(job), kind is ProfileKind.QUICK
    for of_kind in (False, True) if is_quick else (False,):
        capture = cached_capture(job, batch_sizes, is_quick=of_kind, notify=events.notice)
        if capture is not None:
            return capture
    if isinstance(launcher, ForkLauncher):
        launcher.is_refused()  # it waits until nothing is imported beside what is timed
    total_s = job.budget.time_s
    limit_s = None if job.predict or total_s is None else share_s(total_s, PREDICTIONS)
    if is_quick:
        return quick_capture(job, batch_sizes, launcher=launcher, limit_s=limit_s, events=events)
    return new_capture(job, batch_sizes, limit_s=limit_s, events=events)
