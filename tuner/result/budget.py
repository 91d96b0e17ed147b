"""How long a budget would decide what a study has left undecided, and what no budget decides."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.measure.budget import FINALS, GROUP_FINALS, LATENCY_FINALS
from tuner.measure.warning import Code
from tuner.result.study import AT_SAME_LATENCY, ONE, SEVERAL, FinalsResult, StudyResult, VerdictResult
from tuner.result.wording import of_text
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import QUANTILES, LimitStatus, samples_needed

_ROUND_UP_S = 300.0  # budgets are suggested in steps of five minutes
_LEAST = 1e-6  # log scale; on the margin itself no number of rounds decides
_LONGEST_S = 7200.0  # nobody waits for longer than that
_MORE_STEPS = 4  # times as many halve the interval of a share
_SHARES = {ONE: FINALS, SEVERAL: GROUP_FINALS, AT_SAME_LATENCY: LATENCY_FINALS}


def observation(study: StudyResult, code: Code) -> str:
    """Return what was seen of a kind of warning, "" where there is none."""
    return next((each.found for each in study.warnings if each.code is code), "")


def searching(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield how long a budget would leave time for a search where the recommended settings took all of it."""
    if study.wall_s and observation(study, Code.NO_SEARCH):
        minutes = round(math.ceil(2 * study.wall_s / _ROUND_UP_S) * _ROUND_UP_S / 60)
        yield "Search", f"only the guides' settings were tried: the same command with --time-budget {minutes}m"


def _alone(study: StudyResult, of: str) -> str:
    """Return the option of a search that leaves more time to one answer."""
    return " --one-process" if of == ONE and study.groups is not None else ""


def deciding(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield how long a budget would decide what is undecided of each answer."""
    for name, answer in study.answers.items():
        advice, against = answer.recommended, answer.verdicts.get(study.default)
        if advice.gain is not None or against is None:
            continue
        codes = {against.code, (advice.together or against).code}  # of the last finals, and of all sessions
        if codes != {VerdictCode.UNDECIDED}:
            continue
        of, option = of_text(study, name), _alone(study, name)
        if observation(study, Code.FEW_DIGITS):
            yield "Decide", f"{of}no budget decides it before the command prints more digits"
            continue
        budget_s = deciding_budget_s(study, answer.finals, against, share=_SHARES[name])
        if budget_s is None:
            yield "Decide", f"{of}there were too few rounds to estimate how long it takes"
        elif budget_s > _LONGEST_S:
            hours = round(_LONGEST_S / 3600)
            yield "Decide", f"{of}more than {hours} hours: the difference is small for the noise of this machine"
        else:
            minutes = round(budget_s / 60)
            yield "Decide", f"{of}about {minutes} more minutes: the same command with --time-budget {minutes}m{option}"


def deciding_budget_s(
    study: StudyResult, finals: FinalsResult, against: VerdictResult, *, share: float = FINALS
) -> float | None:
    """Return the budget (s) of a search whose finals would decide, if the difference is what it seems to be.

    With n rounds the interval's half-width is h (log scale). Half-widths shrink with √n, so that m rounds have
    h √(n / m), and the verdict is decided where that is below d, the distance of the mean x̄ from 0 where |x̄| is above
    the margin δ (better or worse), and else that from the margin, δ - |x̄| (no difference): m = n (h / d)². A round
    costs what it cost, starts included, and these finals have a `share` of the budget.
    """
    n, wall_s, measured_s = finals.rounds, study.wall_s, study.measured_s
    if None in (against.speedup, against.low, against.high) or n < 2 or not wall_s or not measured_s:
        return None
    assert against.speedup is not None  # for mypy: as asked above
    assert against.low is not None
    assert against.high is not None
    mean = abs(math.log(against.speedup))
    half = (math.log(against.high) - math.log(against.low)) / 2
    margin = math.log1p(finals.margin)
    distance = mean if mean > margin else max(margin - mean, _LEAST)
    return _budget_s(study, finals, n * (half / distance) ** 2, share)


def showing_tail(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield how long a budget would show whether what is recommended keeps to a limit on p99, where that is open."""
    for name, answer in study.answers.items():
        advice, finals = answer.recommended, answer.finals
        if study.limits.p99_s is None or advice.limits is not LimitStatus.UNKNOWN:
            continue
        firsts = [first for first, names in finals.names.items() if advice.source in names]
        n = max((finals.tails[first].n_steps for first in firsts if first in finals.tails), default=0)
        needed = samples_needed(QUANTILES["p99"])
        of = of_text(study, name)
        text = f"{of}p99 needs {needed} steps, and {n} were seen"
        if n >= needed:
            text, needed = f"{of}p99 is too near to its limit: {n} steps cannot decide", _MORE_STEPS * n
        budget_s = _budget_s(study, finals, finals.rounds * needed / n, _SHARES[name]) if n else None
        if budget_s is None or budget_s > _LONGEST_S:
            yield "Limit", f"{text}: it takes hours, or a smaller batch"
        else:
            yield "Limit", f"{text}: the same command with --time-budget {round(budget_s / 60)}m{_alone(study, name)}"


def _budget_s(study: StudyResult, finals: FinalsResult, rounds: float, share: float) -> float | None:
    """Return the budget (s) of a search in which these finals hold so many rounds, starts included."""
    n, wall_s, measured_s = finals.rounds, study.wall_s, study.measured_s
    if not n or not wall_s or not measured_s:
        return None
    needed_s = max(rounds, n + 1) * finals.timed_s / n * (wall_s / measured_s) / share
    return math.ceil(max(needed_s, wall_s) / _ROUND_UP_S) * _ROUND_UP_S
