"""Predictions of throughput: a workload's costs and tasks, simulated on a machine, and held against what was measured.

Notation
    x̂(s)     simulated items per second of a setting s:  instances · streams · b / makespan
    λ(n, b)  measured step over simulated step, where a step was measured with n threads, one operator at a time
    n̄        the threads that can run at once: n, or the CPUs or the quota where these are fewer
    k        cores at work in all processes, which take 1 + ℓ (k − 1) / (C − 1) times as long (`tuner.model.hardware`)
    x(s) = x̂(s) / (max(λ(n, b), λ(n̄, b)) · (1 + ℓ (k − 1) / (C − 1))), with ln λ interpolated over ln n and ln b,
    constant outside of what was measured. What threads gain beyond the simulation they gain where they run at once;
    what they cost, anywhere
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.model.configuration import DEFAULT_BLOCKTIME_S, Configuration
from tuner.model.costs import Costs, Operating, costs_of, hops
from tuner.model.executor import Pools, Simulated, simulate
from tuner.model.hardware import TERMS, Hardware, Terms
from tuner.model.profile import Operator, Profile
from tuner.model.tasks import Tasks, tasks_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """ln λ at what was measured: ascending batch sizes, and for each the thread counts and values."""

    batch_sizes: tuple[int, ...]
    threads: tuple[tuple[int, ...], ...]
    log_ratios: tuple[tuple[float, ...], ...]

    def ratio(self, threads: float, batch_size: float) -> float:
        """Return λ(n, b)."""
        at_sizes = [
            float(np.interp(math.log(threads), np.log(counts), values))
            for counts, values in zip(self.threads, self.log_ratios, strict=True)
        ]
        return math.exp(float(np.interp(math.log(batch_size), np.log(self.batch_sizes), at_sizes)))


@dataclass(slots=True, kw_only=True)
class Predictor:
    """What is known of a workload, for simulations of it."""

    costs: Costs
    inputs: Sequence[Sequence[int]]
    """The operators that each waits for, by their numbers."""
    profiled_on: Hardware
    dispatch_s: float
    has_teams: bool
    calibration: Calibration | None = None
    terms: Terms = TERMS
    _tasks: dict[int, Tasks] = field(default_factory=dict, init=False)
    _simulated: dict[tuple[Configuration, Hardware], Simulated] = field(default_factory=dict, init=False)
    _never_full: dict[tuple[Configuration, Hardware], Simulated] = field(default_factory=dict, init=False)
    """Those in which a slot was always free, by all but the number of slots: with more slots they are the same."""

    @property
    def most_threads(self) -> int:
        """Return the most threads of an operator that were profiled."""
        return 1 if self.calibration is None else max(counts[-1] for counts in self.calibration.threads)

    def tasks(self, batch_size: int) -> Tasks:
        """Return the tasks of a step: what is worth another thread in a large batch may not be in a small one.

        That is looked up on the machine that was profiled; beyond the batch sizes that were, at the nearest of these.
        """
        if self.calibration is not None:
            sizes = self.calibration.batch_sizes
            batch_size = min(max(batch_size, sizes[0]), sizes[-1])
        if batch_size not in self._tasks:
            times_s = self.costs.time_s(1.0, batch_size, self.profiled_on).time_s
            runs = self.costs.runs.astype(int)
            self._tasks[batch_size] = tasks_of(self.inputs, times_s.tolist(), runs=runs.tolist())
        return self._tasks[batch_size]

    def step(self, configuration: Configuration, whole: Hardware) -> Simulated:
        """Return what a simulation of one of the processes comes to; equal ones are simulated once."""
        hardware = configuration.hardware(whole)
        # Processes that have the same share of a machine are the same simulation.
        own = replace(configuration, instances=1, cores=None, smt=None)
        slots = configuration.pools.inter_op
        any_slots = (replace(own, pools=replace(own.pools, inter_op=0)), hardware)
        known = self._simulated.get((own, hardware)) or self._never_full.get(any_slots)
        if known is not None and slots >= known.most_running:
            return known
        simulated = simulate(
            self.tasks(configuration.batch_size),
            functools.partial(self.alone, configuration, hardware),
            configuration.pools,
            hardware,
            has_team=self.has_team(configuration.batch_size),
            dispatch_s=self.dispatch_s,
            terms=self.terms,
        )
        self._simulated[own, hardware] = simulated
        if simulated.most_running < slots:
            self._never_full[any_slots] = simulated
        return simulated

    def has_team(self, batch_size: int) -> list[bool]:
        """Return whether a task has operators that run on teams, of each task."""
        tasks = self.tasks(batch_size)
        return list(np.bincount(tasks.part, self.costs.library, len(tasks)) > 0)

    def alone(self, configuration: Configuration, hardware: Hardware, shared: float) -> Operating:
        """Return what tasks take alone, with `shared` threads of the shared pool each, shapes (tasks,)."""
        operators = self.costs.time_s(shared, configuration.batch_size, hardware)
        pools = configuration.pools
        if pools.team is not None:
            operators = self._teams(pools, configuration.batch_size, hardware).where(self.costs.library, operators)
        tasks = self.tasks(configuration.batch_size)
        return operators.summed(tasks.part, len(tasks))

    def _teams(self, pools: Pools, batch_size: int, hardware: Hardware) -> Operating:
        """Return what operators take on a team: one that spins is busy all the time, one that slept has to wake.

        Threads that share a CPU take turns there: only those on other CPUs have to be woken and waited for.
        """
        assert pools.team is not None
        apart = min(pools.team, hardware.cpus)
        fork_s = self.costs.fork_s * float(hops(apart)) / max(1.0, float(hops(pools.team)))
        if pools.blocktime_s > 0:
            team = replace(self.costs, fork_s=fork_s).time_s(pools.team, batch_size, hardware)
            return replace(team, busy_s=team.time_s * pools.team, serial_s=np.zeros_like(team.time_s))
        asleep_s = self.terms.asleep_s if apart > 1 else 0.0
        return replace(self.costs, fork_s=fork_s, asleep_s=asleep_s).time_s(pools.team, batch_size, hardware)

    def items_per_s(self, configuration: Configuration, whole: Hardware) -> float:
        """Return x(s)."""
        simulated = self.step(configuration, whole)
        n_items = configuration.instances * configuration.pools.streams * configuration.batch_size
        hardware = configuration.hardware(whole)
        at_once = max(1.0, min(configuration.threads, hardware.cpus, hardware.quota or math.inf))
        at_work = min(simulated.mean_threads, hardware.cores)
        ratio = whole.slower(configuration.instances * at_work)
        if self.calibration is not None:
            ratio /= whole.slower(min(at_work, self.most_threads))  # what was profiled has it
            ratio *= max(self.calibration.ratio(n, configuration.batch_size) for n in (at_once, configuration.threads))
        return n_items / (simulated.makespan_s * ratio)


def predictor_of(profiles: Mapping[int, Profile], hardware: Hardware, *, has_teams: bool) -> Predictor:
    """Return the predictor of a workload by its profiles on a machine, by batch size.

    `has_teams` tells whether oneDNN's threads are teams of OpenMP's. Raises ValueError where there is no profile.
    """
    largest = profiles[max(profiles)]
    operators = largest.operators
    # What lies between operators is known best where the profiler was asked.
    smallest = profiles[min(profiles)]
    asked = next((each for each in profiles.values() if each.traced[0].exposed is not None), smallest)
    dispatch_s = asked.between_s / max(1, asked.n_runs)
    costs = costs_of(profiles, hardware, dispatch_s=dispatch_s)
    predictor = Predictor(
        costs=costs,
        inputs=[_inputs(operator, operators) for operator in operators],
        profiled_on=hardware,
        dispatch_s=dispatch_s,
        has_teams=has_teams,
    )
    predictor.calibration = _calibration(predictor, profiles, hardware)
    return predictor


def _inputs(operator: Operator, operators: Sequence[Operator]) -> list[int]:
    """Return what an operator waits for in the first run of a loop."""
    is_entry = operator.op == "Merge"
    return [i for i in operator.inputs if not (is_entry and operators[i].op == "NextIteration")]


def _calibration(predictor: Predictor, profiles: Mapping[int, Profile], hardware: Hardware) -> Calibration:
    """Return ln λ at what profiles measured: one operator at a time."""

    def step_s(threads: int, size: int) -> float:
        return predictor.step(profiled(threads, size, predictor), hardware).makespan_s

    traced = {size: profiles[size].traced for size in sorted(profiles)}
    return Calibration(
        batch_sizes=tuple(traced),
        threads=tuple(tuple(each.threads for each in own) for own in traced.values()),
        log_ratios=tuple(
            tuple(math.log(each.step_s / step_s(each.threads, size)) for each in own) for size, own in traced.items()
        ),
    )


def profiled(threads: int, batch_size: int, predictor: Predictor) -> Configuration:
    """Return the configuration of a process that was profiled with so many threads."""
    team = threads if predictor.has_teams else None
    return Configuration(
        batch_size=batch_size,
        pools=Pools(inter_op=1, intra_op=threads, team=team, blocktime_s=DEFAULT_BLOCKTIME_S if team else 0.0),
    )
