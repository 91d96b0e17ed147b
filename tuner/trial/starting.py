"""Starting processes a few at a time: most of a start is one thread that imports and loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.launcher import Launcher, Process
from tuner.trial.outcome import Facts, TrialFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process that is warm and paused, or, where `failure` is set, already closed."""

    setting: Setting
    process: Process
    facts: Facts | None = None
    failure: TrialFailure | None = None


def start_together(launcher: Launcher, wanted: Sequence[tuple[Setting, Deployment]], *, parallel: int) -> list[Started]:
    """Start a process for each (setting, deployment), at most `parallel` at once, and wait until all are warm.

    Nothing may be timed meanwhile. A process that fails is closed and told of; if anything else goes wrong, all
    are closed.
    """
    started: list[Started] = []
    launched: list[Process] = []
    try:
        for at in range(0, len(wanted), parallel):
            group = wanted[at : at + parallel]
            for setting, deployment in group:  # one by one: what is launched has to be known when the next one fails
                launched.append(launcher.launch(setting, deployment))
            started += [_await(setting, process) for (setting, _), process in zip(group, launched[at:], strict=True)]
    except BaseException:
        for process in launched:
            process.close()
        raise
    return started


def _await(setting: Setting, process: Process) -> Started:
    try:
        facts = process.ready()
        process.pause()
    except TrialFailure as failure:
        process.close()
        return Started(setting=setting, process=process, failure=failure)
    return Started(setting=setting, process=process, facts=facts)
