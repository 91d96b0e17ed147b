"""The comparison: what is asked for, who takes part, what is stored, and the time.

And what comes before and beside the verdicts: models are made ready and checked, frameworks tuned, and starts timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from tuner.devices.registry import DEFAULT as CPU
from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.job.events import TaskEvents
from tuner.job.frameworks.candidate import (
    REFERENCE,
    Candidate,
    Failure,
    PreparedVariant,
    Variant,
    broken,
    candidates_of,
    chosen,
    interpreters,
    variants,
)
from tuner.job.frameworks.result import ComparisonData
from tuner.job.frameworks.store import CheckedStart, Loading, Store
from tuner.job.job import prepare
from tuner.job.nested import run_nested
from tuner.job.parsed import check_margin, find_device, find_workload, parse_request
from tuner.job.request import KEEP, MAY_CHANGE, NUMERICS, FrameworksRequest, SearchRequest
from tuner.job.servers import free_memory_bytes
from tuner.machine.conditions import Watch
from tuner.machine.pagecache import evict, files_of
from tuner.measure.agreement import Sample, spread
from tuner.measure.budget import SEARCHES, Countdown, parse_duration
from tuner.measure.measurement import Measurement, checked_measurement
from tuner.measure.objective import Objective
from tuner.measure.rounds import Contender
from tuner.quantity import duration_text
from tuner.result.frameworks import COMPLETE, OUT_OF_TIME, AbsentResult, SettingKind, TunedResult
from tuner.result.study import StudyResult
from tuner.space.groups import parse_sizes
from tuner.stats.equivalence import VerdictCode
from tuner.study.storage import check_storage
from tuner.study.subject import workload_facts
from tuner.trial.audit import Seen
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure
from tuner.workload.workload import Execution

_LASTING = (Status.OK, Status.OOM, Status.INVALID, Status.UNAPPLIED)


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What the stages share. The first of the prepared variants is the reference."""

    request: FrameworksRequest
    events: TaskEvents
    prepared: Sequence[PreparedVariant]
    absent: Sequence[AbsentResult]
    batch_size: int
    batches: Sequence[int]
    time: Countdown
    store: Store
    watch: Watch
    ended: str = COMPLETE
    passing: dict[tuple[str, int], Measurement] = field(default_factory=dict)
    """Measurements of this run that are not stored, by name and batch size: what failed may be over the next time."""
    lost_at: int | None = None
    """The batch size at which the reference failed in this run, None where it did not."""

    @property
    def reference(self) -> PreparedVariant:
        """Return the variant whose default all others are compared with."""
        return self.prepared[0]

    @property
    def reference_candidate(self) -> Candidate:
        """Return the reference's default."""
        return Candidate(prepared=self.reference, kind=SettingKind.DEFAULT)

    def free_memory_bytes(self) -> int | None:
        """Return the memory that processes may take; None where that is not known."""
        return free_memory_bytes(self.reference.job)

    def say(self, what: str) -> None:
        """Tell what begins."""
        self.events.progress(f"{what}; {duration_text(self.time.left_s())} left")

    def running(self) -> list[PreparedVariant]:
        """Return those that have not dropped out."""
        return [each for each in self.prepared if each.failure is None]

    def candidates(self) -> list[Candidate]:
        """Return the settings of those that have not dropped out, the reference's default first."""
        return candidates_of(self.running())

    def measurements(self) -> list[Measurement]:
        """Return all measurements that are stored of the settings."""
        sizes = sorted({*self.batches, self.batch_size})
        known = (self.measurement(candidate, batch_size) for candidate in self.candidates() for batch_size in sizes)
        return [measurement for measurement in known if measurement is not None]

    def measurement(self, candidate: Candidate, batch_size: int) -> Measurement | None:
        """Return what is known of a setting at a batch size, None where nothing is."""
        return self.store.measurement(candidate, batch_size) or self.passing.get((candidate.name, batch_size))

    def put_measurement(self, candidate: Candidate, measurement: Measurement) -> None:
        """Store a measurement; one that failed, and may not do so the next time, is kept for this run only."""
        if measurement.status in _LASTING:
            self.store.put_measurement(candidate, measurement)
        else:
            self.passing[candidate.name, measurement.batch_size] = measurement

    def data(self) -> ComparisonData:
        """Return all that has been measured."""
        job, store = self.reference.job, self.store
        start = store.checked(self.reference_candidate)
        rounds = store.rounds(self.candidates())
        measurements = self.measurements()
        names = {each.contender for each in measurements}.union(*([*each.slices, *each.failures] for each in rounds))
        absent = [*self.absent]
        candidates: list[Candidate] = []
        for each in self.prepared:
            own = candidates_of([each])
            if each.failure is not None:
                default = each.starts.get(SettingKind.DEFAULT)
                absent.append(
                    AbsentResult(
                        framework=each.name,
                        reason=each.failure.message,
                        hint=each.failure.hint,
                        status=each.failure.status.value,
                        deviation=None if default is None else default.deviation,
                        precision=each.precision,
                    )
                )
            elif each is self.reference or any(candidate.name in names for candidate in own):
                candidates += own
        absent += [
            AbsentResult(framework=each.name, reason="nothing of it was measured", hint="", status="not measured")
            for each in self.running()
            if each.name not in {candidate.framework for candidate in candidates}
        ]
        return ComparisonData(
            name=store.name,
            subject=structs.replace(job.subject, workload=workload_facts(job.workload, job.inputs or store.inputs)),
            outputs=store.outputs,
            batch_size=self.batch_size,
            candidates=candidates,
            absent=absent,
            tuned={each.name: each.tuned for each in self.prepared if each.tuned is not None},
            rounds=rounds,
            measurements=measurements,
            loads={each.name: loading for each in self.running() if (loading := store.loading(each)) is not None},
            ended=self.ended,
            conditions=store.conditions,
            margin=self.request.margin,
            why_no_energy=job.device.why_no_energy(),
            spread=None if start is None else spread(start.sample),
        )


def prepare_comparison(request: FrameworksRequest, events: TaskEvents) -> Comparison:
    """Return a comparison of which nothing is measured yet; raises BadInputError."""
    batches = parse_sizes(request.batches, "--scan")
    budget_s = parse_duration(request.time_budget)
    check_margin(request.margin)
    check_storage(request.storage, create=not request.stored)
    if request.new and request.stored:
        raise BadInputError("--stored and --new contradict each other", "give one of them")
    if request.numerics not in NUMERICS:
        raise unknown_name("word for --numerics", request.numerics, NUMERICS)
    if request.workload.execution != Execution.GRAPH:
        raise BadInputError(
            f"--execution {request.workload.execution} is one of several that are compared",
            "leave it out; TensorFlow compiled by XLA is called tensorflow-xla here",
        )
    if request.workload.framework is not None:
        named = f"--framework {request.workload.framework} names one"
        raise BadInputError(named, "name those to compare with --frameworks")
    reader = registry.reader_of(Path(request.workload.words[0])) if request.workload.words else None
    if reader is not None and reader.name != REFERENCE:
        named = f"frameworks are compared with TensorFlow, which does not read {request.workload.words[0]}"
        raise BadInputError(named, "give the SavedModel, the .keras file or the Python file that it was made from")
    framework, workload = find_workload(replace(request.workload, framework=REFERENCE))
    if workload.command is not None:
        raise BadInputError("a command is not a model that other frameworks could run", "give a model")
    device = find_device(request.workload, framework)
    if not request.stored:
        device.check_idle()
    batch_size = workload.batch_size if request.batch_size is None else request.batch_size
    if batch_size < 1:
        raise BadInputError(f"--batch-size is {batch_size}", "expected at least 1")
    everyone = variants(device, interpreters(request.pythons), may_change_numerics=request.numerics == MAY_CHANGE)
    wanted, are_named = chosen(request.frameworks, everyone, device)
    prepared: list[PreparedVariant] = []
    absent = [] if are_named else [_absent(name, error) for name, error in broken().items()]
    seen = Seen()  # one for all: what their processes were seen to be goes into the conditions of the comparison
    for variant in wanted:
        try:
            prepared.append(_prepared(variant, request, batch_size, seen))
        except TunerError as error:
            if are_named or variant.name == REFERENCE:
                raise
            absent.append(_absent(variant.name, error))
    comparison = Comparison(
        request=request,
        events=events,
        prepared=prepared,
        absent=absent,
        batch_size=batch_size,
        batches=batches,
        time=Countdown(total_s=budget_s),
        watch=prepared[0].job.device.watch(prepared[0].job.machine),
        store=Store.open(
            request.storage,
            prepared[0],
            batch_size=batch_size,
            seed=request.seed,
            new=request.new,
            create=not request.stored,
        ),
    )
    earlier = comparison.store.conditions
    if earlier is not None:  # what was measured then still counts
        seen.pinned, seen.unlike_cores = earlier.pinned, earlier.unlike_cores
        seen.not_finite = earlier.not_finite or None
    recall(comparison)
    if request.stored:
        for each in comparison.prepared:
            each.failure = each.failure or comparison.store.failure(each)
        comparison.ended = comparison.store.ended or comparison.ended
        comparison.batches = sorted({*batches, *comparison.store.batch_sizes})
    ignored = sorted({name for each in comparison.prepared for name in each.job.ignored_variables})
    replace(comparison.reference.job, ignored_variables=ignored).tell_notes(events.notice)
    return comparison


def _absent(name: str, error: TunerError) -> AbsentResult:
    return AbsentResult(framework=name, status="refused", reason=error.message, hint=error.hint or "")


def recall(comparison: Comparison) -> None:
    """Take what is stored of each variant."""
    comparison.store.reread()
    for each in comparison.prepared:
        each.tuned = comparison.store.tuned(each)
        for candidate in candidates_of([each]):
            start = comparison.store.checked(candidate)
            if start is None:
                continue
            each.learn(candidate.kind, start.measurement)
            if candidate.kind is SettingKind.DEFAULT:
                each.start_s = start.start_s


def _prepared(variant: Variant, request: FrameworksRequest, batch_size: int, seen: Seen) -> PreparedVariant:
    """Return a variant with its job; raises BadInputError, for example where it is not installed."""
    parsed = parse_request(request_of(variant, request, batch_size))
    return PreparedVariant(variant=variant, job=replace(prepare(parsed), seen=seen))


def request_of(variant: Variant, request: FrameworksRequest, batch_size: int) -> SearchRequest:
    """Return the request of what is measured in a variant, at one batch size."""
    return SearchRequest(
        workload=variant.spec(request.workload),
        space=request.space,
        objective=Objective.THROUGHPUT.value,  # alone
        batch_size=str(batch_size),
        pins=list(variant.pins),
        python=str(variant.python),
        storage=request.storage,
        trial_timeout=request.trial_timeout,
        numerics=MAY_CHANGE if variant.pins else KEEP,
        instances=False,
    )


# ---- what comes before candidates are measured ----------------------------------------------------------------------

_LEAST_SEARCH_S = 10.0
_LONGER = 2.0  # a search is done once more where there is so much more time for it than it had
_N_STARTS = 3  # of processes, one after the other, that a search cannot do without: reference, baselines, finals
_N_LOADS = 2  # cold and warm starts of each framework


def make_ready(comparison: Comparison) -> None:
    """Make the model ready for each framework; one that it cannot be converted for drops out."""
    for each in comparison.prepared:
        comparison.say(f"{each.name}: preparing the model")
        try:
            launcher = each.job.launcher()
        except BadInputError as error:
            if each is comparison.reference:
                raise
            each.failure = Failure(status=Status.FAILED, message=error.message, hint=error.hint or "")
            comparison.store.put_failure(each)
            comparison.events.notice(f"{each.name}: {error.message}")
            continue
        assert isinstance(launcher, FreshLauncher)  # it is no command
        each.launcher = launcher
        comparison.store.put_failure(each)
    if comparison.reference.job.has_fixed_batch() and [*comparison.batches] != [comparison.batch_size]:
        comparison.batches = [comparison.batch_size]
        comparison.events.notice(
            f"the model takes batches of {comparison.batch_size} only: no other batch size is measured"
        )


def check(comparison: Comparison) -> None:
    """Hold outputs and precision of each default against the reference's, and know what a start takes.

    Raises BadInputError where the reference does not run.
    """
    for each in comparison.running():
        start = each.starts.get(SettingKind.DEFAULT)
        # Outputs that could not be compared may be comparable now.
        if start is None or (start.deviation is None and each is not comparison.reference):
            _check(comparison, Candidate(prepared=each, kind=SettingKind.DEFAULT))


def tune(comparison: Comparison) -> None:
    """Search in each framework, unless that was done, or the time left is too short for searches.

    Raises KeyboardInterrupt where a search was interrupted.
    """
    share_s = SEARCHES * comparison.time.left_s()
    waiting = [each for each in comparison.running() if _is_short(each, share_s / len(comparison.running()))]
    # Whoever searches alone, as it came later, has no more time than the others had.
    search_s = max(_LEAST_SEARCH_S, share_s / len(comparison.running()))
    most_s = min(search_s, comparison.time.left_s() / max(1, len(waiting)))
    for each in waiting:
        # On the CPU most processes are forks.
        least_s = _LEAST_SEARCH_S if each.job.device.kind == CPU else _N_STARTS * each.start_s
        if least_s > most_s:
            failure = (
                f"a search takes {least_s:.0f} s at least here, and {max(0, math.floor(most_s))} s are left for it: "
                "give a longer --time-budget"
            )
            each.tuned = each.tuned or TunedResult(study=None, setting=None, failure=failure, searched_s=0.0)
            comparison.events.notice(f"{each.name}: {failure}")
            continue
        comparison.say(f"{each.name}: searching for {search_s:.0f} s")
        ended = run_nested(search_request(comparison, each, search_s))
        if ended.interrupted:
            raise KeyboardInterrupt
        if ended.study is None:
            each.tuned = each.tuned or TunedResult(study=None, setting=None, failure=ended.failure, searched_s=None)
            comparison.events.notice(f"{each.name}: the search failed: {ended.failure}")
            continue  # perhaps the next time
        each.tuned = tuned_of(ended.study, searched_s=search_s)
        each.starts.pop(SettingKind.TUNED, None)
        comparison.store.put_tuned(each, each.tuned)
        comparison.events.notice(f"{each.name}: {each.tuned.text}")


def _is_short(prepared: PreparedVariant, search_s: float) -> bool:
    """Return whether a variant was not searched in, or for a much shorter time than there is now."""
    tuned = prepared.tuned
    return tuned is None or (tuned.searched_s is not None and search_s > _LONGER * tuned.searched_s)


def tuned_of(study: StudyResult, *, searched_s: float) -> TunedResult:
    """Return what a search came to: the setting that it recommends, or, where it shows nothing, its best one.

    That is measured anew here, so that nothing is claimed of it yet. The default is kept where the best other setting
    was shown to be no better.
    """
    recommended, best = study.recommended, study.incumbent
    default = dict(study.baselines[study.default].setting)
    verdict = (study.verdicts or {}).get(study.default)
    is_open = verdict is None or verdict.code in (VerdictCode.UNDECIDED, VerdictCode.BETTER)
    if recommended is not None and dict(recommended.setting) != default:
        setting = dict(recommended.setting)
    elif best is not None and is_open and (best.ratio or 0.0) > 1.0:
        setting = dict(best.setting)
    else:
        setting = default
    return TunedResult(study=study.study, setting=setting, failure="", searched_s=searched_s)


def search_request(comparison: Comparison, prepared: PreparedVariant, search_s: float) -> SearchRequest:
    """Return the request of the search in a framework."""
    request = comparison.request
    return replace(
        request_of(prepared.variant, request, comparison.batch_size),
        time_budget=f"{search_s:.0f}s",
        seed=request.seed,
        margin=request.margin,
        new=request.new,
        predict=False,  # of the others nothing can be predicted
        wait=True,
    )


def check_tuned(comparison: Comparison) -> None:
    """Hold what the tuned settings compute against the reference, too; one that computes something else is given up."""
    for candidate in comparison.candidates():
        if candidate.kind is SettingKind.TUNED and SettingKind.TUNED not in candidate.prepared.starts:
            _check(comparison, candidate)


def _check(comparison: Comparison, candidate: Candidate) -> None:
    """Start a setting once. What comes of it is stored, unless it failed: that may be over the next time."""
    prepared = candidate.prepared
    comparison.say(f"{candidate.text}: checking its outputs")
    began_s = time.monotonic()
    contender = candidate.contender(comparison.batch_size)
    try:
        facts, peak_memory_bytes = start_once(contender)
    except TrialFailure as failure:
        if candidate == comparison.reference_candidate:
            raise BadInputError(
                f"TensorFlow's default does not run: {failure.message}", failure.hint or "", log=failure.evidence(2000)
            ) from failure
        measurement = Measurement.failed(contender, failure)
    else:
        known = comparison.store.checked(comparison.reference_candidate)
        expected = None if known is None else known.sample
        measurement = measurement_of(comparison, candidate, comparison.batch_size, facts, expected)
        start = CheckedStart(
            measurement=replace(measurement, peak_memory_bytes=peak_memory_bytes),
            start_s=time.monotonic() - began_s,
            sample=None if facts.sample is None else dict(facts.sample),
        )
        comparison.store.put_checked(candidate, start)
        prepared.start_s = start.start_s
    prepared.learn(candidate.kind, measurement)
    comparison.store.put_failure(prepared)
    if measurement.status is not Status.OK:
        comparison.events.notice(f"{candidate.text}: {measurement.message}")


def measurement_of(
    comparison: Comparison, candidate: Candidate, batch_size: int, facts: ReadyReport, expected: Sample | None
) -> Measurement:
    """Return what a warm process of a candidate tells: a measurement, invalid where it computes something else.

    `expected` is what the reference computed, from the same batch if each item is to be compared.
    """
    variant, precision = candidate.prepared.variant, candidate.prepared.job.precision_of(facts)
    is_reference = candidate == comparison.reference_candidate
    return checked_measurement(
        candidate.name,
        batch_size,
        facts,
        precision,
        expected=None if is_reference else expected,
        expected_precision=None if is_reference or variant.pins else comparison.reference.precision,
        limit=variant.limit(precision),
    )


def start_once(contender: Contender) -> tuple[ReadyReport, int | None]:
    """Start a process of a contender, end it when it is warm; return what it tells, and its peak memory (bytes).

    Raises TrialFailure.
    """
    assert contender.launcher is not None  # the model is ready
    process = contender.launcher.launch(contender.setting, contender.deployment)
    try:
        facts = process.ready()
    except BaseException:
        process.close()
        raise
    return facts, process.close().peak_memory_bytes


def time_loading(comparison: Comparison) -> None:
    """Start each framework's default with its files in the page cache and without, at batch size 1."""
    for each in comparison.running():
        if comparison.store.loading(each) is not None:
            continue
        if comparison.time.is_over:
            comparison.ended = OUT_OF_TIME
            return
        comparison.say(f"{each.name}: loading, cold and warm")
        contender = Candidate(prepared=each, kind=SettingKind.DEFAULT).contender(1)
        files = files_of(each.variant.python, each.job.export())
        loading = Loading(cold=[], warm=[])
        try:
            start_once(contender)  # whatever is made once and kept
            for _ in range(_N_LOADS):
                evict(files)
                loading.cold.append(_loading_s(contender))
                loading.warm.append(_loading_s(contender))
        except TrialFailure as failure:
            comparison.events.notice(f"{each.name}: {failure.message}")
            continue
        comparison.store.put_loading(each, loading)


def loading_s(comparison: Comparison) -> float:
    """Return about how long (s) it takes to time the starts that were not timed yet."""
    waiting = [each for each in comparison.running() if comparison.store.loading(each) is None]
    return (1 + 2 * _N_LOADS) * sum(each.start_s for each in waiting)


def _loading_s(contender: Contender) -> tuple[float, float]:
    """Return how long (s) a process takes until its model is there, and from then until its first answer."""
    facts, _ = start_once(contender)
    return facts.context_s + facts.load_s, facts.first_step_s
