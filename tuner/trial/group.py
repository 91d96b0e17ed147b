"""Groups: the processes that run one setting together, behind the protocol of a single one.

Each member of a group is an instance of the workload with a model of its own, and all compute at the same time. What
the group does in a slice is what its members do together; see `tuner.trial.outcome.combined`. Its memory is what its
members hold, with what they share counted once.

Members that share a batch among them take their steps together: a step of the group is one of each, begun at the same
time, and ends when the slowest has answered. So do the members of an ensemble, which are different models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tuner.child.callers import MAX_STEP_TIMES
from tuner.space.deployment import Deployment
from tuner.trial.launcher import Worker
from tuner.trial.load import Load, Served, together
from tuner.trial.outcome import (
    EnergyMeter,
    ExitStatus,
    ReadyReport,
    Slice,
    TrialFailure,
    combined,
    lockstep,
    metered,
    no_meter,
)
from tuner.trial.process import ChildProcess

T = TypeVar("T")

_ONE_STEP_S = 1e-9  # a slice ends with the first step after its time: this one with the first step


def launch(start: Callable[[int], ChildProcess], deployment: Deployment, energy_j: EnergyMeter = no_meter) -> Worker:
    """Start the processes of a deployment, by their numbers from 0, and return them as one.

    `energy_j` is read around each slice that several have together. Raises what `start` raises, with nothing left
    behind.
    """
    members: list[ChildProcess] = []
    try:
        for number in range(deployment.processes):
            members.append(start(number))  # noqa: PERF401  # started processes must be known if the next start fails
    except BaseException:
        for member in members:
            member.close()
        raise
    if deployment.members:
        return Ensemble(members, [each.name for each in deployment.members], energy_j)
    if len(members) == 1:
        return members[0]
    return InStep(members, energy_j) if deployment.shared_batch else Group(members, energy_j)


class Group:
    """Several processes that run one setting together."""

    def __init__(self, members: Sequence[ChildProcess], energy_j: EnergyMeter = no_meter) -> None:
        self._members = members
        self._energy_j = energy_j
        self._shared_bytes: list[int] = []

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return what all have held together; None where one does not tell."""
        return self._sum([member.peak_memory_bytes for member in self._members])

    @property
    def answers_on(self) -> Sequence[int]:
        """Return the pipes of their reports."""
        return [descriptor for member in self._members for descriptor in member.answers_on]

    def ready(self) -> ReadyReport:
        """Wait until all are loaded and warm."""
        return self._facts(self._ask(lambda member: member.ready()))

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Let all go on with another batch size, and wait until all are warm."""
        for member in self._members:
            member.start_batch(batch_size)
        return self._facts(self._ask(lambda member: member.end_batch()))

    def slice(self, duration_s: float) -> Slice:
        """Let all run whole steps for at least `duration_s` at the same time."""
        before_j = self._energy_j()
        return metered(self._slice(duration_s), before_j, self._energy_j())

    def _slice(self, duration_s: float) -> Slice:
        for member in self._members:
            member.start_slice(duration_s)
        return combined(self._ask(lambda member: member.end_slice()))

    def load(self, load: Load) -> Served:
        """Let all answer requests, which are dealt out to them at random."""
        of_member = {member: load.of(number, len(self._members)) for number, member in enumerate(self._members)}
        for member, own in of_member.items():
            member.start_load(own)
        return together(load, self._ask(lambda member: member.end_load(of_member[member])))

    def pause(self) -> None:
        """Stop all."""
        for member in self._members:
            member.pause()

    def resume(self) -> None:
        """Let all go on."""
        for member in self._members:
            member.resume()

    def close(self) -> ExitStatus:
        """End all; the first exit code that tells of a failure is the group's."""
        exits = [member.close() for member in self._members]
        codes = [each.returncode for each in exits]
        return ExitStatus(
            returncode=next((code for code in codes if code != 0), 0),
            peak_memory_bytes=self._sum([each.peak_memory_bytes for each in exits]),
        )

    def _ask(self, ask: Callable[[ChildProcess], T]) -> list[T]:
        """Return what each member answers; a failure tells which one it was."""
        answers = []
        for number, member in enumerate(self._members, start=1):
            try:
                answers.append(ask(member))
            except TrialFailure as failure:
                message = f"{self._title(number)}: {failure.message}"
                raise TrialFailure(
                    failure.status, message, failure.log, frames=failure.frames, hint=failure.hint
                ) from failure
        return answers

    def _title(self, number: int) -> str:
        """Return what a member is called, by its number from 1."""
        return f"process {number} of {len(self._members)}"

    def _facts(self, facts: Sequence[ReadyReport]) -> ReadyReport:
        """Return what the first member told, with the longest of all phases and the memory of all."""
        warmed_up = [each.settled for each in facts]
        self._shared_bytes = [each.shared_bytes or 0 for each in facts]
        return replace(
            facts[0],
            import_s=max(each.import_s for each in facts),
            context_s=max(each.context_s for each in facts),
            load_s=max(each.load_s for each in facts),
            first_step_s=max(each.first_step_s for each in facts),
            warm_up=combined([each.warm_up for each in facts]),
            memory_bytes=self._sum([each.memory_bytes for each in facts]),
            settled=None if None in warmed_up else all(warmed_up),
        )

    def _sum(self, amounts: Sequence[int | None]) -> int | None:
        """Return how much memory all hold, what they share counted once; None where one is not known."""
        known_amounts = [amount for amount in amounts if amount is not None]
        if len(known_amounts) < len(amounts):
            return None
        return sum(known_amounts) - sum(sorted(self._shared_bytes)[:-1])


class InStep(Group):
    """Processes that take their steps together."""

    def _slice(self, duration_s: float) -> Slice:
        """Let all run whole steps together for at least `duration_s`, what is between the steps included."""
        steps: list[Slice] = []
        until_s = time.monotonic() + duration_s
        while not steps or time.monotonic() < until_s:
            for member in self._members:
                member.start_slice(_ONE_STEP_S)
            steps.append(lockstep(self._ask(lambda member: member.end_slice())))
        stride = -(-len(steps) // MAX_STEP_TIMES)
        return Slice(
            start_s=steps[0].start_s,
            elapsed_s=sum(step.elapsed_s for step in steps),
            n_steps=len(steps),
            step_s=tuple(round(step.elapsed_s, 7) for step in steps[::stride]),
            resumed=steps[0].resumed,
        )

    def _facts(self, facts: Sequence[ReadyReport]) -> ReadyReport:
        """Return the facts of all; a step takes as long as the slowest member's."""
        return replace(super()._facts(facts), warm_up=max(facts, key=lambda each: each.step_s).warm_up)


class Ensemble(InStep):
    """Processes of different models that answer together."""

    def __init__(self, members: Sequence[ChildProcess], names: Sequence[str], energy_j: EnergyMeter = no_meter) -> None:
        """`names` are those of the members' models."""
        super().__init__(members, energy_j)
        self._names = names

    def _title(self, number: int) -> str:
        return self._names[number - 1]

    def _facts(self, facts: Sequence[ReadyReport]) -> ReadyReport:
        """Return the facts of all, and the outputs of all members."""
        samples = {name: each.sample for name, each in zip(self._names, facts, strict=True) if each.sample is not None}
        batches = {name: sample["batch"] for name, sample in samples.items() if "batch" in sample}
        sample = _joined(samples)
        if sample["outputs"] and len(batches) == len(samples):
            sample["batch"] = _joined(batches)
        not_finite = {
            f"{name}/{output}": counts
            for name, each in zip(self._names, facts, strict=True)
            for output, counts in each.not_finite.items()
        }
        return replace(super()._facts(facts), sample=sample if sample["outputs"] else None, not_finite=not_finite)


def _joined(samples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the samples of members as one, in which the outputs of each have its name before theirs."""
    outputs = {f"{name}/{each}": values for name, own in samples.items() for each, values in own["outputs"].items()}
    joined = {"inputs": " ".join(own["inputs"] for own in samples.values()), "outputs": outputs}
    places = {f"{name}/{each}": at for name, own in samples.items() for each, at in own.get("not_finite", {}).items()}
    return joined | ({"not_finite": places} if places else {})
