"""Warnings: all that can make a figure less believable, in one place, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tuner.machine.conditions import Conditions
from tuner.measure import interruption

_STEAL = 0.02
_BUSY, _OVERSUBSCRIBED = 0.05, 0.5  # of the CPUs in the mask, kept busy by others
# The kernel's scheduler shares CPUs between sessions, so that others never get more than their part of them; that
# something waits nearly all the time tells how much more they wanted.
_CROWDED, _WAITED = 0.25, 0.75
_THROTTLED = 0.01


class Code(StrEnum):
    """What is the matter."""

    BUSY = "busy"
    OVERSUBSCRIBED = "oversubscribed"
    STEAL = "steal"
    HEAT = "heat"
    QUOTA = "quota"
    ASLEEP = "asleep"
    STALLED = "stalled"
    NOT_STEADY = "not steady"
    FORKS = "forks differ"
    FEW_SAMPLES = "few samples"
    FEW_ROUNDS = "few rounds"
    ALONE = "measured alone"
    NOISY = "noisy"
    ASSUMED_NOISE = "assumed noise"
    NO_SEARCH = "no search"
    UNPROVEN_LIMIT = "unproven limit"


ADVICE = {
    Code.BUSY: "end what else runs here, or give a longer --time-budget",
    Code.OVERSUBSCRIBED: "end the other processes: threads that wait for a CPU measure the scheduler",
    Code.STEAL: "the hypervisor gave the CPUs to others: measure at a quieter time or on another host",
    Code.HEAT: "the CPU slowed itself down: mend the cooling, or lower the load before measuring",
    Code.QUOTA: "the container's CPU quota held the threads back: fewer threads may be faster, or raise the quota",
    Code.ASLEEP: "what was under way was measured again; keep the machine awake",
    Code.STALLED: "it was measured again; see what else runs here, or whether the workload waits for something",
    Code.NOT_STEADY: "it went on changing after its warm-up: a longer --time-budget, or a workload that settles",
    Code.FORKS: "the finals went on with fresh interpreters, so fewer rounds counted: give a longer --time-budget",
    Code.FEW_SAMPLES: "give a longer --time-budget",
    Code.FEW_ROUNDS: "give a longer --time-budget",
    Code.ALONE: "memory holds one process at a time, so drift is only partly taken out: free some memory",
    Code.NOISY: "smaller differences are seldom decided: a quieter machine, or a longer --time-budget",
    Code.ASSUMED_NOISE: "the noise floor is mostly what is usual, not what was seen: give a longer --time-budget",
    Code.NO_SEARCH: "the finals needed the rest of the time: give a longer --time-budget",
    Code.UNPROVEN_LIMIT: "give a longer --time-budget, so that there are more steps to judge by",
}


DISTURBING = frozenset(
    {Code.BUSY, Code.OVERSUBSCRIBED, Code.STEAL, Code.HEAT, Code.QUOTA, Code.ASLEEP, Code.STALLED, Code.NOT_STEADY}
)
"""What disturbs measurements, and so explains why nothing could be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementWarning:  # the field's own word; the builtin is not used here
    """One thing that makes a figure less believable; `found` says what was seen."""

    code: Code
    observation: str


def condition_warnings(conditions: Conditions) -> list[MeasurementWarning]:
    """Return what the machine did that makes figures less believable."""
    warnings: list[MeasurementWarning] = []

    def add(code: Code, text: str) -> None:
        warnings.append(MeasurementWarning(code=code, observation=text))

    share = conditions.foreign_cpus / conditions.n_cpus
    load_text = f"other processes kept {conditions.foreign_cpus:.1f} of {conditions.n_cpus} CPUs busy"
    crowded = share >= _CROWDED and (conditions.pressure_share or 0.0) >= _WAITED
    if share >= _OVERSUBSCRIBED or crowded:
        waited = (
            ""
            if conditions.pressure_share is None
            else f"; something waited in {100 * conditions.pressure_share:.0f} % of it"
        )
        add(Code.OVERSUBSCRIBED, load_text + waited)
    elif share >= _BUSY:
        add(Code.BUSY, load_text)
    if conditions.steal_share >= _STEAL:
        add(Code.STEAL, f"{100 * conditions.steal_share:.0f} % of the CPU time was stolen")
    if conditions.throttled_share >= _THROTTLED:
        add(Code.QUOTA, f"the CPU quota held processes back in {100 * conditions.throttled_share:.0f} % of the time")
    if conditions.hot:
        add(Code.HEAT, f"{conditions.hot} times slowed down by heat")
    slept = interruption.suspended(conditions.asleep_s)
    if slept is not None:
        add(Code.ASLEEP, slept.text)
    return warnings


def merge(*groups: Iterable[MeasurementWarning]) -> list[MeasurementWarning]:
    """Return the warnings of several sources, each kind once: the last that was said of it."""
    return list({warning.code: warning for group in groups for warning in group}.values())
