"""The evidence for a setting: its gain over every baseline and its loss against the best setting found, by study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct

from tuner.rules.evidence import StudyEvidence
from tuner.rules.strata import Count, Expected, Ratio, SituationKind, StratumClass, grouped, over_workloads
from tuner.space.setting import Setting
from tuner.stats import Z95

_MARGIN = math.log(1.02)
_BAD_LOSS = math.log(1 / 0.9)


class Loss(Struct, frozen=True, kw_only=True):
    """What is lost against the best setting found, as shares of its rate: 0.03 for 3 %."""

    median: float
    worst: float
    worst_study: str


class NumberCompared(Struct, frozen=True, kw_only=True):
    """Of how many settings the best found is the best: in the median study, and in the one with the fewest."""

    median: float
    min: Count


class CounterExample(Struct, frozen=True, kw_only=True):
    """A study in which a setting is surely worse than the default, or loses a tenth of the best found.

    `over_default` and its 95 % interval are ratios of rates, as is `of_best`.
    """

    study: str
    situation: SituationKind
    over_default: float
    low: float
    high: float
    of_best: float


class Evidence(Struct, frozen=True, kw_only=True):
    """What settings, one a study, gave in some studies: support, gains over baselines, losses, counter-examples."""

    n_studies: Annotated[int, Meta(ge=1)]
    workloads: tuple[str, ...]
    n_shapes: Count
    n_measured: Count
    """In how many studies the setting itself was measured."""
    n_tied: Count
    """In how many it is tied with the best found."""
    gains: dict[StratumClass, dict[str, Ratio]]
    """By class of strata, then by baseline: one average of all speaks for none."""
    loss: Loss
    compared: NumberCompared
    detectable_loss: float | None
    """The smallest loss that the median study can detect, as a share; null where each setting is the best found."""
    counter_examples: tuple[CounterExample, ...]
    expected: Expected | None = None
    """Null where nothing could be held out."""
    equivalents: tuple[str, ...] = ()
    """What means the same in all of these studies, in words; the recommended settings first."""


def evidence_for(
    studies: Sequence[StudyEvidence],
    settings: Sequence[Setting],
    *,
    batch: bool = False,
    expected: Expected | None = None,
    equivalents: Sequence[str] = (),
) -> Evidence:
    """Return what `settings`, one a study, gave in these studies, of which there is at least one.

    With `batch` the best found is that of any batch size, else that at the workload's own.
    """
    pairs = list(zip(studies, settings, strict=True))
    losses = [(study, loss(study, setting, batch=batch)) for study, setting in pairs]
    by_class = grouped(pairs, lambda pair: pair[0].kind.stratum_class)
    return Evidence(
        n_studies=len(studies),
        workloads=tuple(sorted({study.workload for study in studies})),
        n_shapes=len({study.shape_id for study in studies}),
        n_measured=sum(setting in study.surface.measured for study, setting in pairs),
        n_tied=sum(is_tied_with_best(study, setting, batch=batch) for study, setting in pairs),
        gains={
            name: {baseline: Ratio.of(over_workloads(_over(some, baseline))) for baseline in baselines(studies)}
            for name, some in by_class.items()
        },
        loss=_loss(losses),
        compared=_compared(studies, batch=batch),
        detectable_loss=_detectable_loss(pairs, batch=batch),
        counter_examples=_counter_examples(pairs, losses),
        expected=expected,
        equivalents=tuple(equivalents),
    )


def baselines(studies: Sequence[StudyEvidence]) -> list[str]:
    """Return the names of the baselines that every one of the studies has."""
    if not studies:
        return []
    return [name for name in studies[0].baselines if all(name in study.baselines for study in studies)]


def loss(study: StudyEvidence, setting: Setting, *, batch: bool = False) -> float:
    """Return the log-ratio of the best found to a setting: not below 0, as what was found is a bound from below."""
    best = study.best_found(batch=batch)
    return max(0.0, study.surface.log_ratio(setting, best)[0])


def is_tied_with_best(study: StudyEvidence, setting: Setting, *, batch: bool = False) -> bool:
    """Return whether a setting is tied with the best one found, or shown to be within 2 % of it.

    One that was not measured has to be surely within 2 %: that nothing is known of it does not make it right.
    """
    best = study.best_found(batch=batch)
    mean, sd = study.surface.log_ratio(setting, best)
    if setting in study.surface.measured:
        return mean <= max(_MARGIN, Z95 * sd)
    return mean + Z95 * sd <= _MARGIN


def _over(pairs: Sequence[tuple[StudyEvidence, Setting]], name: str) -> list[tuple[str, float]]:
    return [(study.workload, study.surface.log_ratio(study.baselines[name], setting)[0]) for study, setting in pairs]


def _loss(losses: Sequence[tuple[StudyEvidence, float]]) -> Loss:
    worst_study, worst = max(losses, key=lambda each: each[1])
    return Loss(
        median=-math.expm1(-median(value for _, value in losses)),
        worst=-math.expm1(-worst),
        worst_study=worst_study.name,
    )


def _compared(studies: Sequence[StudyEvidence], *, batch: bool) -> NumberCompared:
    n = [study.n_compared(batch=batch) for study in studies]
    return NumberCompared(median=median(n), min=min(n))


def _detectable_loss(pairs: Sequence[tuple[StudyEvidence, Setting]], *, batch: bool) -> float | None:
    best = [(study, setting, study.best_found(batch=batch)) for study, setting in pairs]
    needed = [Z95 * study.surface.log_ratio(setting, other)[1] for study, setting, other in best if setting != other]
    return -math.expm1(-max(_MARGIN, median(needed))) if needed else None


def _counter_examples(
    pairs: Sequence[tuple[StudyEvidence, Setting]], losses: Sequence[tuple[StudyEvidence, float]]
) -> tuple[CounterExample, ...]:
    """Return the counter-examples, the one that loses most first."""
    counter_examples = []
    for (study, setting), (_, lost) in zip(pairs, losses, strict=True):
        mean, sd = study.surface.log_ratio(study.default, setting)
        worse = mean < -_MARGIN and mean + Z95 * sd < 0
        if worse or lost > _BAD_LOSS:
            counter_examples.append(
                CounterExample(
                    study=study.name,
                    situation=study.kind,
                    over_default=math.exp(mean),
                    low=math.exp(mean - Z95 * sd),
                    high=math.exp(mean + Z95 * sd),
                    of_best=math.exp(-lost),
                )
            )
    return tuple(sorted(counter_examples, key=lambda each: each.of_best))
