"""Trials: one setting, what its processes ran, and what that says; and how a trial is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from msgspec import convert
from optuna.trial import FrozenTrial

from tuner.errors import DamagedStudyError
from tuner.measure.interruption import Interruption
from tuner.measure.objective import rounding
from tuner.measure.pair import Pair
from tuner.measure.passes import PassEstimates, Turn
from tuner.plain import SPARSE, UNSTORED, digits, to_plain
from tuner.space.setting import Setting
from tuner.stats.estimate import Estimate
from tuner.trial.outcome import Slice, Status, TrialFailure, energy_of

GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A finished trial. `log_ratio` and `se` are there if the status is ok; `pruned` if it was stopped early.

    A trial that is not `eligible` is a baseline that a pin rules out: compared with, and not chosen. `reference` is
    the number of the reference process that it ran beside, `process` that of its own, 0 if it is not known: other
    batch sizes of its threads may have run in it too; `alone` if it and the reference lived one at a time; not `steady`
    if it went on changing after its warm-up; `over_limit` if it breaks a limit.

    `slices` are its own, and `passes` the number of the pass of each. Trials of earlier versions were paired with the
    reference: they have no passes, and their `se` leaves out the luck of the two processes.
    """

    number: int = field(metadata=UNSTORED)
    setting: Setting
    eligible: bool = True
    baselines: tuple[str, ...] = ()
    log_ratio: float | None = None
    se: float | None = None
    df: float = 0.0
    reference: int = 0
    process: int = 0
    alone: bool = False
    steady: bool = True
    over_limit: bool = False
    pruned: bool = False
    message: str = ""
    hint: str = ""
    """What to do about its failure, where that is known."""
    log: str = ""
    slices: tuple[Slice, ...] = ()
    passes: tuple[int, ...] = ()
    beside: tuple[Turn, ...] = ()
    """What the reference, and other processes without a trial, ran in these passes; of each, one trial has it."""
    n_blocks: int = field(default=0, metadata=UNSTORED)
    """How many values its estimate is from."""
    timed_s: float = field(default=0.0, metadata=UNSTORED)
    """The time spent inside slices, with those of `beside`."""
    interruptions: tuple[Interruption, ...] = ()
    rounding: float = field(default=0.0, metadata=SPARSE)
    """The most by which its ratio may be off (log) because a command prints few digits."""
    covariance: Mapping[int, float] | None = field(default=None, compare=False, repr=False, metadata=UNSTORED)
    """Of its log-ratio with those of other trials, by number; None if it is not known."""
    facts: dict[str, Any] | None = None
    deviation: float | None = None
    """How far its outputs lie from the reference's, relative; None where they could not be compared."""
    peak_memory_bytes: int | None = None
    wall_s: float = field(default=0.0, metadata=digits(3))
    is_group: bool = field(default=False, metadata=UNSTORED)
    """Whether it is of several processes, in a study whose space is of one."""
    status: Status
    """Stored last: it says that the others are there."""

    def failed(self, failure: TrialFailure) -> Trial:
        """Return the trial as one that ended with this failure."""
        return replace(self, status=failure.status, message=failure.message, hint=failure.hint, log=failure.log)

    @property
    def reason(self) -> str:
        """Return why it failed, and what to do about it where that is known."""
        return f"{self.message}; {self.hint}" if self.hint else self.message

    @property
    def turns(self) -> Sequence[Turn]:
        """Return what it and those without a trial ran, pass by pass."""
        in_pass: dict[int, list[Slice]] = {}
        for number, each in zip(self.passes, self.slices, strict=False):  # pairs of earlier versions have no passes
            in_pass.setdefault(number, []).append(each)
        own = [
            Turn(in_pass=number, process=self.process, setting=self.setting, slices=tuple(slices))
            for number, slices in in_pass.items()
        ]
        return [*own, *self.beside]

    @property
    def estimate(self) -> Estimate | None:
        """Return its log-ratio to the reference; None where there is no number."""
        if self.status is not Status.OK or self.log_ratio is None or self.se is None:
            return None
        return Estimate(mean=self.log_ratio, se=self.se, n=self.n_blocks, df=self.df, rounding=self.rounding)

    def known(self, process_sd: float) -> Estimate | None:
        """Return its estimate with the luck of processes in its standard error; `process_sd` is σ_p (log scale)."""
        estimate = self.estimate
        if estimate is None or self.passes:
            return estimate
        return estimate.widened(math.sqrt(2) * process_sd)

    def difference(self, other: Trial, process_sd: float) -> Estimate | None:
        """Return its log-ratio to another trial's setting, with the luck of processes; None if one has no number."""
        a, b = self.estimate, other.estimate
        if a is None or b is None:
            return None
        difference = a.minus(b)
        shared = None if self.covariance is None else self.covariance.get(other.number)
        if shared is not None:
            return replace(difference, se=math.sqrt(max(0.0, a.se**2 + b.se**2 - 2 * shared)))
        n_effects = sum(0 if each.passes else 2 for each in (self, other)) - 2 * (self.reference == other.reference)
        return difference.widened(math.sqrt(max(n_effects, 0)) * process_sd)

    @property
    def start_s(self) -> float:
        """Return how long its process took until it was warm; 0 where that is not known."""
        if self.facts is None:
            return 0.0
        phases_s = (self.facts[phase] for phase in ("context_s", "load_s", "first_step_s"))
        return float(sum(phases_s) + min(1.0, 2 * self.facts["warm_up"]["elapsed_s"]))

    @property
    def first_step_s(self) -> float | None:
        """Return how long the first step took; None where that is not known."""
        return self.facts["first_step_s"] if self.facts else None

    @property
    def settled(self) -> bool | None:
        """Return whether the warm-up came to its end; None where that is not known."""
        return self.facts["settled"] if self.facts else None

    @property
    def step_s(self) -> list[float]:
        """Return how long each step took that its pair tells of."""
        return [s for each in self.slices for s in each.latency_samples_s]

    @property
    def energy_j_per_item(self) -> float | None:
        """Return the energy (J) that the device took for an item, with what it takes anyway; None if not known."""
        joules, _ = self._metered
        n_items = self.setting.batch_size * sum(each.n_steps for each in self.slices)
        return None if joules is None or not n_items else joules / n_items

    @property
    def power_w(self) -> float | None:
        """Return the mean power (W) of the device in its slices; None where that is not known."""
        joules, seconds = self._metered
        return None if joules is None or not seconds else joules / seconds

    @property
    def _metered(self) -> tuple[float | None, float]:
        """Return the energy (J) and the duration (s) of its slices, None where one of them was not metered."""
        return energy_of(self.slices)

    @property
    def is_inapplicable(self) -> bool:
        """Return whether its setting means nothing for this workload, so that there is nothing to compare with.

        The workload overrides its variables, or computes something else under it. Any other failure may be temporary.
        """
        return self.status is Status.UNAPPLIED or (self.status is Status.INVALID and self.deviation is not None)


Score = Callable[[Sequence[Trial]], list[Trial]]
"""Returns trials with other log-ratios: those of what a search wants more of, if it is not what they measure."""


def estimated(trials: Sequence[Trial], now: PassEstimates, reference: Setting) -> list[Trial]:
    """Return trials with what all passes say of them: their log-ratios, and how these vary together."""
    joint, of = now.contrasts.covariance, now.settings
    known = [trial for trial in trials if trial.passes and trial.estimate is not None and trial.setting in of]

    def with_estimate(trial: Trial) -> Trial:
        if trial not in known:
            return trial
        own = now.between(trial.setting, reference)
        covariance = {other.number: float(joint[of[trial.setting], of[other.setting]]) for other in known}
        return replace(trial, log_ratio=own.mean, se=own.se, df=own.df, rounding=own.rounding, covariance=covariance)

    return [with_estimate(trial) for trial in trials]


def attributes_of(trial: Trial) -> dict[str, Any]:
    """Return a trial as it is stored: what is empty, or not known, is left out."""
    own = {GROUP: True} if trial.is_group else {}
    return own | {key: value for key, value in to_plain(trial).items() if value not in (None, "", [])}


def trial_from(study: str, frozen: FrozenTrial) -> Trial:
    """Return a stored trial; raises DamagedStudyError where it cannot be understood."""
    try:
        return _understood(frozen, frozen.user_attrs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStudyError(study, f"trial {frozen.number}", error) from error


def _understood(frozen: FrozenTrial, attrs: Mapping[str, Any]) -> Trial:
    slices = convert(attrs.get("slices", ()), tuple[Slice, ...])
    passes, beside = tuple(attrs.get("passes", ())), tuple(Turn.from_dict(each) for each in attrs.get("beside", ()))
    known: dict[str, Any] = {each.name: attrs[each.name] for each in fields(Trial) if each.name in attrs} | {
        "number": frozen.number,
        "setting": Setting.of(attrs["setting"]),
        "status": Status(attrs["status"]),
        "baselines": tuple(attrs.get("baselines", ())),
        "slices": slices,
        "passes": passes,
        "beside": beside,
        "n_blocks": len(set(passes)),
        "timed_s": sum(each.elapsed_s for each in [*slices, *(s for turn in beside for s in turn.slices)]),
        "interruptions": convert(attrs.get("interruptions", ()), tuple[Interruption, ...]),
        "is_group": attrs.get(GROUP, False),
    }
    if "pair" in attrs:
        pair = convert(attrs["pair"], Pair)
        known |= {
            "slices": tuple(pair.candidate),
            "n_blocks": pair.n_blocks,
            "timed_s": pair.timed_s,
            "interruptions": tuple(pair.interruptions),
            "rounding": rounding(pair.reference) + rounding(pair.candidate),
        }
    return Trial(**known)
