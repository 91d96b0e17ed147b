"""How long a budget would decide what a study has left undecided, and what no budget decides."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.measure.budget import FINALS, GROUP_FINALS
from tuner.measure.warning import Code
from tuner.result.study import FinalsResult, StudyResult, VerdictResult
from tuner.stats.equivalence import VerdictCode

_ROUND_UP_S = 300.0  # budgets are suggested in steps of five minutes
_LEAST = 1e-6  # log scale; on the margin itself no number of rounds decides
_LONGEST_S = 7200.0  # nobody waits for longer than that


def observation(study: StudyResult, code: Code) -> str:
    """Return what was seen of a kind of warning, "" where there is none."""
    return next((each.found for each in study.warnings if each.code is code), "")


def searching(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield how long a budget would leave time for a search where the recommended settings took all of it."""
    if study.wall_s and observation(study, Code.NO_SEARCH):
        minutes = round(math.ceil(2 * study.wall_s / _ROUND_UP_S) * _ROUND_UP_S / 60)
        yield "Search", f"no setting beside the guides' was tried: the same command with --time-budget {minutes}m"


def deciding(study: StudyResult, finals: FinalsResult) -> Iterator[tuple[str, str]]:
    """Yield how long a budget would decide what is undecided of one process, and of several."""
    several = study.groups
    alone = "" if several is None else " --no-instances"
    held = [(study.recommended, finals, study.verdicts or {}, FINALS, alone)]
    if several is not None:
        held.append((several.recommended, several.finals, several.verdicts, GROUP_FINALS, ""))
    for advice, own_finals, verdicts, share, option in held:
        against = verdicts.get(study.default)
        if advice is None or advice.gain is not None or against is None:
            continue
        codes = {against.code, (advice.together or against).code}  # of the last finals, and of all sessions
        if codes != {VerdictCode.UNDECIDED}:
            continue
        of = "" if several is None else "one process: " if option else "several: "
        if observation(study, Code.FEW_DIGITS):
            yield "Decide", f"{of}no budget decides it before the command prints more digits"
            continue
        budget_s = deciding_budget_s(study, own_finals, against, share=share)
        if budget_s is None:
            yield "Decide", f"{of}there were too few rounds to say how long it would take"
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
    rounds = n * (half / distance) ** 2
    round_s = finals.timed_s / n * (wall_s / measured_s)
    needed_s = max(rounds, n + 1) * round_s / share
    return math.ceil(max(needed_s, wall_s) / _ROUND_UP_S) * _ROUND_UP_S
