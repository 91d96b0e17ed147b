"""The comparison: what is asked for, who takes part, what is stored, and the time. Its stages are in other files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.job.events import TaskEvents
from tuner.job.frameworks.candidate import (
    REFERENCE,
    Candidate,
    PreparedVariant,
    Variant,
    broken,
    candidates_of,
    chosen,
    interpreters,
    variants,
)
from tuner.job.frameworks.result import ComparisonData
from tuner.job.frameworks.store import Store
from tuner.job.job import prepare
from tuner.job.parsed import check_margin, find_device, find_workload, parse_request
from tuner.job.request import KEEP, MAY_CHANGE, NUMERICS, FrameworksRequest, SearchRequest
from tuner.job.servers import free_memory_bytes
from tuner.machine.conditions import Watch
from tuner.measure.agreement import spread
from tuner.measure.budget import Countdown, parse_duration
from tuner.measure.measurement import Measurement
from tuner.measure.objective import Objective
from tuner.quantity import duration_text
from tuner.result.frameworks import COMPLETE, AbsentResult, SettingKind
from tuner.space.groups import parse_sizes
from tuner.study.storage import check_storage
from tuner.study.subject import workload_facts
from tuner.trial.audit import Seen
from tuner.trial.outcome import Status
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
