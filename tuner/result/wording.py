"""How answers are worded wherever they are given: the words of an objective, speed-ups, cores, what several gain."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from tuner.machine.host import Machine
from tuner.measure.objective import Objective
from tuner.paths import DEFAULT_STORAGE, storage_option
from tuner.quantity import percent, plural, ratio_text
from tuner.result.comparison import ComparisonResult
from tuner.result.study import AT_SAME_LATENCY, ONE, SEVERAL, PlannedResult, PooledResult, StudyResult, VerdictResult
from tuner.stats.equivalence import VerdictCode

OPTIONS = {ONE: "", SEVERAL: " --instances", AT_SAME_LATENCY: " --same-latency"}
"""What of `emit`, `run` and `check` takes an answer of a study."""
PLACES = {ONE: "of one process", SEVERAL: "of several processes", AT_SAME_LATENCY: "at the same latency"}
"""How finals of an answer are spoken of."""
_WIDE = 4.0  # times: the ends of an interval that says little


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How an answer speaks of an objective: what is better and worse, and what a ratio is one of."""

    better: str = "FASTER"
    worse: str = "SLOWER"
    quantity: str = "speed"
    over: str = "over"
    """What stands between a ratio and what it is of."""
    is_worse: str = "is slower"
    more_than: str = "to be more than {margin} faster"
    best: str = "the fastest"


def wording(objective: Objective) -> Wording:
    """Return how to speak of an objective."""
    if objective is Objective.ENERGY:
        return Wording(
            better="LESS ENERGY",
            worse="MORE ENERGY",
            quantity="items per joule",
            over="the items per joule of",
            is_worse="takes more energy",
            more_than="to take more than {margin} less energy",
            best="the one with the least energy",
        )
    if objective is Objective.CAPACITY:
        return Wording(
            better="MORE",
            worse="LESS",
            quantity="rate within the limit",
            over="the rate of",
            is_worse="carries less",
            more_than="to carry more than {margin} more",
            best="the one that carries most",
        )
    return Wording()


def speed_up(verdict: VerdictResult | ComparisonResult) -> str:
    """Return a speed-up with its interval; of one without a figure that there is none.

    Where the interval's ends are several times apart, no figure between them means anything.
    """
    if verdict.speedup is None or verdict.low is None or verdict.high is None:
        return "no speed-up"
    if verdict.high > _WIDE * verdict.low:
        return range_text(verdict)
    return ratio_text(verdict.speedup, verdict.low, verdict.high, "×")


def sessions_words(together: PooledResult) -> str:
    """Return how many sessions a figure rests on, and on how many nodes if there are several."""
    on_nodes = f" on {plural(len(together.nodes), 'node')}" if together.nodes else ""
    return f"{plural(together.sessions, 'session')}{on_nodes}"


def disagreement(together: PooledResult) -> str:
    """Return that sessions disagree, and the ratio on each node if there are several; "" if they agree."""
    if not together.sessions_disagree:
        return ""
    by_node = ", ".join(f"{node.node} {node.ratio:.2f}×" for node in together.nodes)
    return f", which disagree ({by_node})" if by_node else ", which disagree"


def planned_text(planned: PlannedResult) -> str:
    """Return what planned measurements came to, of which nothing is proven."""
    text = f"planned measurements: {plural(planned.settings, 'setting')}"
    if planned.ratio is None:
        return text
    text += f", best estimate {ratio_text(planned.ratio, planned.low, planned.high, '×')}"
    return text if planned.width is None else f"{text}; known to ±{percent(planned.width)} in the median"


def range_text(verdict: VerdictResult | ComparisonResult) -> str:
    """Return the interval of a verdict that has one, as of something undecided."""
    return f"{verdict.low:.2f}× to {verdict.high:.2f}×"


def cores_text(machine: Machine) -> str:
    """Return the cores that a process may use, and its limit."""
    cores = plural(machine.physical_cores, "core")
    if machine.threads_per_core > 1:
        cores += f" ({plural(machine.logical_cpus, 'thread')})"
    if machine.logical_cpus < machine.online_cpus:
        cores += f", CPUs {machine.affinity} of {machine.online_cpus}"
    quota = machine.cpu_quota
    limit = "no CPU limit" if quota is None else f"a limit of {quota:g} CPU{'' if quota == 1 else 's'}"
    return f"{cores}, {limit}"


def _better_of_several(study: StudyResult) -> str | None:
    """Return what was proven of several processes, over what one process is recommended; None where nothing was."""
    several = study.groups
    if several is None or several.recommended.deployment.processes < 2:
        return None
    gain, spoken = several.recommended.gain, wording(study.objective)
    if gain is None or gain.code is not VerdictCode.BETTER:
        return None
    n = several.recommended.deployment.processes
    return f"{n} processes side by side were proven {spoken.better}: {speed_up(gain)} {spoken.over} the defaults"


def of_text(study: StudyResult, of: str) -> str:
    """Return which answer a line is of, where a study has several."""
    return f"{'several' if of == SEVERAL else of}: " if len(study.answers) > 1 else ""


def pointer(study: StudyResult, command: str, handle: str, storage: str = DEFAULT_STORAGE) -> str | None:
    """Return where a `command` on one process points to: what was proven of several, and how to get that."""
    better, of_study = _better_of_several(study), study_words(handle, storage)
    return None if better is None else f"{better}; get that with: tftune {command} {of_study} --instances"


def same_latency_pointer(study: StudyResult, handle: str, storage: str = DEFAULT_STORAGE) -> str | None:
    """Return what was proven at the latency of the default, and how to get that; None where nothing was."""
    gain = None if study.same_latency is None else study.same_latency.recommended.gain
    if gain is None or gain.code is not VerdictCode.BETTER:
        return None
    proven = f"{speed_up(gain)} {wording(study.objective).over} the defaults"
    command = f"tftune emit {study_words(handle, storage)} --same-latency"
    return f"calls take longer with this; at the same latency {proven}: {command}"


def study_words(handle: str, storage: str) -> str:
    """Return the words by which a command is told of a study."""
    return f"{shlex.quote(handle)}{storage_option(storage)}"
