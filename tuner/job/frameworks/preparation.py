"""What comes before and beside the verdicts: models are made ready and checked, frameworks tuned, and starts timed."""

from __future__ import annotations

import time
from dataclasses import replace

from tuner.devices.registry import DEFAULT as CPU
from tuner.errors import BadInputError
from tuner.job.frameworks.candidate import Candidate, Failure, PreparedVariant
from tuner.job.frameworks.comparison import Comparison, request_of
from tuner.job.frameworks.store import CheckedStart, Loading
from tuner.job.nested import run_nested
from tuner.job.request import SearchRequest
from tuner.machine.pagecache import evict, files_of
from tuner.measure.agreement import Sample
from tuner.measure.budget import SEARCHES
from tuner.measure.measurement import Measurement, checked_measurement
from tuner.measure.rounds import Contender
from tuner.result.frameworks import OUT_OF_TIME, SettingKind, TunedResult
from tuner.result.study import StudyResult
from tuner.stats.equivalence import VerdictCode
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure

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
    """Search in each framework, unless that was done, or a GPU's processes start too slowly for the time there is.

    Raises KeyboardInterrupt where a search was interrupted.
    """
    share_s = SEARCHES * comparison.time.left_s()
    waiting = [each for each in comparison.running() if _is_short(each, share_s / len(comparison.running()))]
    # Whoever searches alone, as it came later, has no more time than the others had.
    search_s = max(_LEAST_SEARCH_S, share_s / len(comparison.running()))
    for each in waiting:
        # On the CPU most processes are forks.
        least_s = 0.0 if each.job.device.kind == CPU else _N_STARTS * each.start_s
        if least_s > search_s:
            failure = (
                f"a search takes {least_s:.0f} s at least here, and {search_s:.0f} s are left for it: "
                "give a longer --time-budget"
            )
            each.tuned = each.tuned or TunedResult(study=None, setting=None, failure=failure, searched_s=None)
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
