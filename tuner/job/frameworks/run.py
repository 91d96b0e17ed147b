"""A contest from beginning to end."""

from __future__ import annotations

from tuner.job.events import FrameworksEvents
from tuner.job.frameworks.contest import Contest, FrameworksRequest, lineup_of, prepare_contest, recall
from tuner.job.frameworks.finals import hold_finals
from tuner.job.frameworks.scan import scan
from tuner.job.frameworks.starts import check, check_tuned, make_ready, time_loading
from tuner.job.frameworks.tuning import tune
from tuner.machine.locks import machine_lock
from tuner.report.lineup import INTERRUPTED, Lineup
from tuner.study.storage import storage_errors


def compare_frameworks(request: FrameworksRequest, events: FrameworksEvents) -> Lineup:
    """Measure what is not stored yet, as far as the time goes; return all there is.

    Raises BadInputError before anything is measured.
    """
    with storage_errors():
        contest = prepare_contest(request, events)
        if request.measures:
            try:
                _measure(contest)
            except KeyboardInterrupt:
                contest.ended = INTERRUPTED
            contest.store.put_seen(contest.reference.job)
            contest.store.put_end(contest.ended, contest.reference.job.seen.added_to(contest.watch.conditions()))
        return lineup_of(contest)


def _measure(contest: Contest) -> None:
    """Run the stages, each as far as it was not run before."""
    request, events = contest.request, contest.events
    with machine_lock(wait=request.wait, on_wait=events.waiting):
        contest.store.put_begin()
        recall(contest)  # another run may have ended meanwhile
        make_ready(contest)
        check(contest)
    tune(contest)  # each search takes the lock itself
    with machine_lock(wait=True, on_wait=events.waiting):
        check_tuned(contest)
        hold_finals(contest)
        time_loading(contest)
        scan(contest)
