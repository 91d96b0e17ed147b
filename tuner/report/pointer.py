"""What points from the answer on one process to the better one on several."""

from __future__ import annotations

import shlex

from tuner.paths import DEFAULT_STORAGE, storage_option
from tuner.report import card
from tuner.report.result.study import StudyResult
from tuner.stats.equivalence import VerdictCode


def better_of_several(study: StudyResult) -> str | None:
    """Return what was proven of several processes, over what one process is recommended; None where nothing was."""
    several = study.groups
    if several is None or several.recommended.deployment.processes < 2:
        return None
    gain, spoken = several.recommended.gain, card.wording(study.objective)
    if gain is None or gain.code is not VerdictCode.BETTER:
        return None
    n = several.recommended.deployment.processes
    return f"{n} processes side by side were proven {spoken.better}: {card.speed_up(gain)} {spoken.over} the defaults"


def pointer(study: StudyResult, command: str, handle: str, storage: str = DEFAULT_STORAGE) -> str | None:
    """Return where a `command` on one process points to: what was proven of several, and how to get that."""
    better, of_study = better_of_several(study), study_words(handle, storage)
    return None if better is None else f"{better}; get that with: tftune {command} {of_study} --instances"


def study_words(handle: str, storage: str) -> str:
    """Return the words by which a command is told of a study."""
    return f"{shlex.quote(handle)}{storage_option(storage)}"
