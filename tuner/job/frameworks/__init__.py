"""Frameworks side by side: each one's default and its tuned setting against TensorFlow's default, batch by batch.

Stages, in the order of what people want to know first:

    prepare  the model is made ready for each framework; outputs and precision are held against TensorFlow's
    tune     a search in each framework at one batch size
    finals   rounds of new processes, one of each framework's default and tuned setting: the verdicts
    loading  how long each takes until its first answer, with files in the page cache and without
    scan     at each batch size all settings beside TensorFlow's default, in common passes

What is started and timed is a candidate (`candidate`). What the stages share is the comparison (`comparison`); whatever
has been measured is stored at once (`store`), and not again. What it comes to is in `result`.
"""

from __future__ import annotations

from tuner.job.events import TaskEvents
from tuner.job.frameworks.comparison import (
    Comparison,
    check,
    check_tuned,
    make_ready,
    prepare_comparison,
    recall,
    time_loading,
    tune,
)
from tuner.job.frameworks.measuring import hold_finals, scan
from tuner.job.frameworks.result import describe_frameworks
from tuner.job.request import FrameworksRequest
from tuner.machine.locks import machine_lock
from tuner.result.frameworks import INTERRUPTED, FrameworksResult
from tuner.study.storage import storage_errors


def compare_frameworks(request: FrameworksRequest, events: TaskEvents) -> FrameworksResult:
    """Measure what is not stored yet, as far as the time goes; return all there is.

    Raises BadInputError before anything is measured.
    """
    with storage_errors():
        comparison = prepare_comparison(request, events)
        if not request.stored:
            try:
                _measure(comparison)
            except KeyboardInterrupt:
                comparison.ended = INTERRUPTED
            comparison.store.put_seen(comparison.reference.job)
            comparison.store.put_end(
                comparison.ended, comparison.reference.job.seen.added_to(comparison.watch.conditions())
            )
        return describe_frameworks(comparison.data())


def _measure(comparison: Comparison) -> None:
    """Run the stages, each as far as it was not run before."""
    request, events = comparison.request, comparison.events
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        comparison.store.put_begin()
        recall(comparison)  # another run may have ended meanwhile
        make_ready(comparison)
        check(comparison)
    tune(comparison)  # each search takes the lock itself
    with machine_lock(wait=True, on_wait=events.waiting):
        check_tuned(comparison)
        hold_finals(comparison)
        time_loading(comparison)
        scan(comparison)
