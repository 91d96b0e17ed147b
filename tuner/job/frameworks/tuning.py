"""Each framework at its best: a search in each, at the batch size of the contest."""

from __future__ import annotations

import shlex

from tuner.devices.registry import DEFAULT as CPU
from tuner.job.frameworks.contest import Contest
from tuner.job.frameworks.participant import Participant
from tuner.job.nested import run_search
from tuner.job.request import MAY_CHANGE
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
        ended = run_search(search_arguments(contest, each, search_s))
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


def search_arguments(contest: Contest, participant: Participant, search_s: float) -> list[str]:
    """Return what `tftune search` is called with for a participant."""
    request, entrant = contest.request, participant.entrant
    arguments = shlex.split(entrant.spec(request.workload).command_line)
    arguments += ["--python", str(entrant.python), "--batch-size", str(contest.batch_size), "--no-instances"]
    arguments += ["--no-predict"]  # of the others nothing can be predicted
    arguments += ["--time-budget", f"{search_s:.0f}s", "--seed", str(request.seed), "--storage", request.storage]
    arguments += ["--trial-timeout", request.trial_timeout, "--margin", f"{100 * request.margin:g}"]
    arguments += [] if request.space is None else ["--space", request.space]
    arguments += ["--new"] if request.new else []
    if entrant.pins:
        arguments += ["--numerics", MAY_CHANGE]
    for pin in entrant.pins:
        arguments += ["--set", pin]
    return arguments
