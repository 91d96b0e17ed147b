"""Each framework at its best: a search in each, at the batch size of the contest."""

from __future__ import annotations

from dataclasses import replace

from tuner.devices.registry import DEFAULT as CPU
from tuner.job.frameworks.contest import Contest, request_of
from tuner.job.frameworks.participant import Participant
from tuner.job.nested import run_search
from tuner.job.request import SearchRequest
from tuner.report.lineup import Kind, Tuned

_LEAST_SEARCH_S = 10.0
_SHARE = 0.2  # of the time that is left, for all searches
_LONGER = 2.0  # a search is done once more where there is so much more time for it than it had
_N_STARTS = 3  # of processes, one after the other, that a search cannot do without: reference, baselines, finals


def tune(contest: Contest) -> None:
    """Search in each framework, unless that was done, or a GPU's processes start too slowly for the time there is.

    Raises KeyboardInterrupt where a search was interrupted.
    """
    share_s = _SHARE * contest.left_s()
    waiting = [each for each in contest.running() if _is_short(each, share_s / len(contest.running()))]
    # Whoever searches alone, as it came later, has no more time than the others had.
    search_s = max(_LEAST_SEARCH_S, share_s / len(contest.running()))
    for each in waiting:
        # On the CPU most processes are forks.
        least_s = 0.0 if each.job.device.kind == CPU else _N_STARTS * each.start_s
        if least_s > search_s:
            failure = (
                f"a search takes {least_s:.0f} s at least here, and {search_s:.0f} s are left for it: "
                "give a longer --time-budget"
            )
            each.tuned = each.tuned or Tuned(study=None, setting=None, failure=failure)
            contest.events.ended(each.name, failure)
            continue
        contest.say(f"{each.name}: searching for {search_s:.0f} s")
        ended = run_search(search_request(contest, each, search_s))
        if ended.interrupted:
            raise KeyboardInterrupt
        if ended.study is None:
            each.tuned = each.tuned or Tuned(study=None, setting=None, failure=ended.failure)
            contest.events.ended(each.name, f"the search failed: {ended.failure}")
            continue  # perhaps the next time
        each.tuned = Tuned.of(ended.study, searched_s=search_s)
        each.starts.pop(Kind.TUNED, None)
        contest.store.put_tuned(each, each.tuned)
        contest.events.ended(each.name, each.tuned.text)


def _is_short(participant: Participant, search_s: float) -> bool:
    """Return whether a participant was not searched in, or for a much shorter time than there is now."""
    tuned = participant.tuned
    return tuned is None or (tuned.searched_s is not None and search_s > _LONGER * tuned.searched_s)


def search_request(contest: Contest, participant: Participant, search_s: float) -> SearchRequest:
    """Return the request of the search in a framework."""
    request = contest.request
    return replace(
        request_of(participant.entrant, request, contest.batch_size),
        time_budget=f"{search_s:.0f}s",
        seed=request.seed,
        margin=request.margin,
        new=request.new,
        predict=False,  # of the others nothing can be predicted
        wait=True,
    )
