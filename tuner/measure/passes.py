"""A pass: a slice of each live process there and back, in a random order, the others being stopped.

    A B C C B A

So drift affects all of them alike, and one that is linear over a pass drops out of its means. Where a step lasts for
several slices of the others, a process has one slice, in the middle of the pass: A B L B A. Where all steps are very
long, a pass goes there only, and the next one back. A slice that stalled is measured again. A pass during which the
machine was suspended, or nothing ran for long, does not count.

Where memory holds one process only, processes live one at a time (`tuner.trial.restarting`): each has one turn in a
pass, of two slices, each turn is that of a new process, and every other pass goes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
from msgspec import convert
from scipy.optimize import nnls

from tuner.machine.conditions import suspended_s
from tuner.measure import interruption
from tuner.measure.interruption import Interruption
from tuner.measure.objective import Objective, Waking, rounding
from tuner.space.setting import Setting
from tuner.stats.estimate import Estimate
from tuner.stats.mixed import Contrasts, contrasts
from tuner.stats.noise import PRIOR_DF, Noise
from tuner.trial.launcher import Process
from tuner.trial.outcome import ReadyReport, Slice, TrialFailure

_MAX_REPEATS = 2  # of one slice; if it keeps stalling, it is simply slow
_LONG = 2.5  # times the shortest slice of a pass
_VERY_LONG_S = 10.0  # of a step: a pass there and back takes too much time
_MAX_INTERRUPTED = 20  # passes that are measured again, before one counts although the machine keeps interrupting
_N_REWEIGHTED = 5
_MAD_SD = 1.4826  # of a normal distribution: its standard deviation over its median absolute deviation


@dataclass(slots=True, kw_only=True)
class Live:
    """A warm and paused process in a pass. `usual_s` are the steps (s) that are known of it, which grow."""

    process: Process
    usual_s: list[float]

    @property
    def step_s(self) -> float:
        """Return about how long a step takes (s)."""
        return median(self.usual_s[-4:])

    def resize(self, batch_size: int) -> ReadyReport:
        """Let it go on with another batch size, and return what it tells when it is warm; raises TrialFailure."""
        self.process.resume()
        facts = self.process.set_batch_size(batch_size)
        self.process.pause()
        self.usual_s = [facts.step_s]
        return facts

    def run_alone(self, n_slices: int, slice_s: float) -> list[Slice]:
        """Time slices of it in turns with no other; raises TrialFailure."""
        self.process.resume()
        slices = [self.process.slice(slice_s) for _ in range(n_slices)]
        self.process.pause()
        return slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What each process ran, by its key. A process that failed has its failure instead.

    `repeated` are why slices were measured again, `interrupted` is why the pass should not count, and mostly does not.
    """

    slices: dict[str, list[Slice]] = field(default_factory=dict)
    failures: dict[str, TrialFailure] = field(default_factory=dict)
    repeated: list[Interruption] = field(default_factory=list)
    interrupted: Interruption | None = None
    order: list[str] = field(default_factory=list)
    counts: bool = True

    @property
    def interruptions(self) -> Sequence[Interruption]:
        """Return why something is measured again: slices, or the whole pass."""
        return self.repeated if self.counts or self.interrupted is None else [self.interrupted]


@dataclass(slots=True, kw_only=True)
class Passes:
    """Passes one after another, of which every other one goes back. Between two processes, each one does.

    What interrupts them does so for all, so that a pass that does not count is to be measured again.
    """

    rng: np.random.Generator
    _order: Sequence[str] = ()
    _n_interrupted: int = 0

    def run(
        self,
        live: Mapping[str, Live],
        ask_s: Callable[[Live], float],
        *,
        once: Collection[str],
        one_at_a_time: bool = False,
        first: Collection[str] = (),
    ) -> Pass:
        """Run the next one: see `run_pass`."""
        done = run_pass(live, self.rng, ask_s, once=once, one_at_a_time=one_at_a_time, first=first, back=self._order)
        self._order = () if self._order and len(live) > 2 else done.order
        counts = done.interrupted is None or self._n_interrupted >= _MAX_INTERRUPTED
        self._n_interrupted += not counts
        return replace(done, counts=counts)


def run_pass(
    live: Mapping[str, Live],
    rng: np.random.Generator,
    ask_s: Callable[[Live], float],
    *,
    once: Collection[str] = (),
    one_at_a_time: bool = False,
    first: Collection[str] = (),
    back: Sequence[str] = (),
) -> Pass:
    """Time the live processes once there and once back; `ask_s` tells for how long (s) to ask one for a slice.

    Those of the keys `once` have one slice, in the middle. A process that fails is left to the caller, who ends it.
    `back` is the order of the pass before: this one goes back. If they live one at a time, those of the keys `first`
    begin, as they hold memory.
    """
    done = Pass()
    slept_s = suspended_s()
    order = [key for key in reversed(back) if key in live]
    order += [key for key in map(str, rng.permutation(sorted(live))) if key not in order]
    if one_at_a_time:
        order.sort(key=lambda key: key not in first)
        turns = [key for key in order for _ in range(2)]
    else:
        twice = [key for key in order if key not in once]
        turns = [*twice, *(key for key in order if key in once), *reversed(twice)]
    ran: list[Slice] = []
    for key, slices in itertools.groupby(turns):  # who turns around goes on without a pause
        if key in done.failures:
            continue
        try:
            ran += _turn(live[key], ask_s(live[key]), len(list(slices)), done.slices.setdefault(key, []), done)
        except TrialFailure as failure:
            done.failures[key] = failure
            del done.slices[key]
    # One at a time, processes start meanwhile; one that failed made the others wait.
    gap = None if one_at_a_time or done.failures else interruption.idle(ran, "a pass")
    return replace(done, interrupted=interruption.suspended(suspended_s() - slept_s) or gap, order=order)


def _turn(live: Live, ask_s: float, n: int, slices: list[Slice], done: Pass) -> list[Slice]:
    """Time n slices of a process into `slices`; return all that ran."""
    ran: list[Slice] = []
    live.process.resume()
    for _ in range(n):
        for repeats in range(_MAX_REPEATS + 1):
            ran.append(live.process.slice(ask_s))
            stalled = interruption.stalled(live.usual_s, ran[-1:])
            if stalled is None or repeats == _MAX_REPEATS:
                break
            done.repeated.append(stalled)
        live.usual_s.append(interruption.step_s(ran[-1]))
        slices.append(ran[-1])
    live.process.pause()
    return ran


def whole_steps(slice_s: float) -> Callable[[Live], float]:
    """Return what asks for the whole number of steps that lasts about `slice_s` (s).

    A slice ends with the first step that ends after the time asked for, so half a step less is asked for.
    """

    def ask_s(live: Live) -> float:
        return (max(1, round(slice_s / live.step_s)) - 0.5) * live.step_s

    return ask_s


def long_ones(live: Mapping[str, Live], ask_s: Callable[[Live], float]) -> list[str]:
    """Return the keys of those that have one slice in a pass, as it lasts for several of another or very long."""
    are = are_long([each.step_s for each in live.values()], list(map(ask_s, live.values())))
    return [key for key, is_long in zip(live, are, strict=True) if is_long]


def are_long(steps_s: Sequence[float], asked_s: Sequence[float]) -> list[bool]:
    """Return which of several processes have one slice in a pass, by their steps and what they are asked for (s)."""
    lasts_s = list(map(max, steps_s, asked_s))
    limit_s = _LONG * min(lasts_s, default=0.0)
    return [last > limit_s or step > _VERY_LONG_S for last, step in zip(lasts_s, steps_s, strict=True)]


# ---- what passes say -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a process ran in one pass of a study, and with which setting. Passes and processes have numbers."""

    in_pass: int
    process: int
    setting: Setting
    slices: tuple[Slice, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Turn:
        """Return a stored turn."""
        return cls(
            in_pass=data["pass"],
            process=data["process"],
            setting=Setting.of(data["setting"]),
            slices=convert(data["slices"], tuple[Slice, ...]),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the turn by the names that it is stored under."""
        return {
            "pass": self.in_pass,
            "process": self.process,
            "setting": self.setting,
            "slices": self.slices,
        }


def waking(slices: Iterable[Slice]) -> Waking:
    """Return what the first step after a pause takes beyond the others, from slices of any length.

    δ / s = a / s + b        s  mean of a slice's other steps (s);  δ  its first step less that;  a, b ≥ 0

    Caches and pages that others have used meanwhile cost a time a of their own, whatever is computed; what is a part b
    of a step grows with it. A residual beyond three standard deviations counts for less, as a stall may be in either.
    """
    timed = [
        (each.first_step_s, each.resumed * seconds / n_steps)
        for each in slices
        if each.tells_first_steps
        for n_steps, seconds in [each.counted_steps]
    ]
    if not timed:
        return Waking()
    first_s, step_s = np.array(timed).T
    excess, columns = first_s / step_s - 1, np.column_stack([1 / step_s, np.ones_like(step_s)])
    w = np.ones_like(step_s)
    for _ in range(_N_REWEIGHTED):
        (a_s, b), _ = nnls(np.sqrt(w)[:, None] * columns, np.sqrt(w) * excess)
        off = abs(excess - columns @ (a_s, b))
        w = np.minimum(1.0, (3 * _MAD_SD * np.median(off) / np.maximum(off, 1e-12)) ** 2)
    return Waking(constant_s=float(a_s), share=float(b))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEstimates:
    """What turns say of the settings: contrasts to the reference, numbered as in `settings`."""

    settings: dict[Setting, int]
    contrasts: Contrasts
    n_passes: dict[Setting, int]
    waking: Waking
    """What the first step after a pause takes in them."""
    rounding: Mapping[Setting, float]
    """The most by which the mean log rate of each may be off because a command prints few digits."""

    def between(self, a: Setting, b: Setting) -> Estimate:
        """Return the log-ratio of a to b."""
        estimate = self.contrasts.between(self.settings[a], self.settings[b], n=self.n_passes[a])
        return estimate if a == b else replace(estimate, rounding=self.rounding[a] + self.rounding[b])


def estimate_passes(
    turns: Sequence[Turn], reference: Setting, objective: Objective, noise: Noise
) -> PassEstimates | None:
    """Return what turns say of their settings, beside the reference; None without turns.

    `noise` is what is known of the machine's. A value is the mean of two slices, of half the variance of a block.
    """
    if not turns:
        return None
    costs = waking(each for turn in turns for each in turn.slices)
    y = np.array([log_rate(turn, objective, costs) for turn in turns])
    settings = {reference: 0}
    candidate = np.array([settings.setdefault(turn.setting, len(settings)) for turn in turns])
    processes: dict[int, int] = {}
    passes: dict[int, int] = {}
    process = np.array([processes.setdefault(turn.process, len(processes)) for turn in turns])
    in_pass = np.array([passes.setdefault(turn.in_pass, len(passes)) for turn in turns])
    return PassEstimates(
        settings=settings,
        contrasts=contrasts(
            y,
            candidate,
            process,
            in_pass,
            process_sd=noise.process_sd,
            prior_sd=noise.block_sd / np.sqrt(2),
            prior_df=PRIOR_DF,
        ),
        n_passes={setting: int((candidate == c).sum()) for setting, c in settings.items()},
        waking=costs,
        rounding={s: rounding([each for t in turns if t.setting == s for each in t.slices]) for s in settings},
    )


def log_rate(turn: Turn, objective: Objective, costs: Waking) -> float:
    """Return the mean log rate of a turn."""
    return float(np.mean([objective.log_rate(each, turn.setting.batch_size, costs) for each in turn.slices]))
