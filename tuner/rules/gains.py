"""The evidence for a setting: its gain over every baseline and its loss against the best setting found, by study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from tuner.rules.average import over_workloads, ratio_document
from tuner.rules.evidence import StudyEvidence
from tuner.rules.situation import Situation
from tuner.rules.strata import class_of, grouped
from tuner.space.setting import Setting

_Z95 = 1.96  # standard deviations of a normal interval of 95 %
_MARGIN = math.log(1.02)
_BAD_LOSS = math.log(1 / 0.9)


def evidence_for(
    studies: Sequence[StudyEvidence], settings: Sequence[Setting], *, batch: bool = False
) -> dict[str, Any]:
    """Return what `settings`, one a study, gave in these studies: support, gains, losses, counter-examples.

    Gains are by class of strata (`tuner.rules.strata.CLASSES`), then by baseline: one average of all speaks for none.
    With `batch` the best found is that of any batch size, else that at the workload's own.
    """
    pairs = list(zip(studies, settings, strict=True))
    losses = [(study, loss(study, setting, batch=batch)) for study, setting in pairs]
    return {
        "studies": len(studies),
        "workloads": sorted({study.workload for study in studies}),
        "shapes": len({study.shape_id for study in studies}),
        "measured": sum(setting in study.surface.measured for study, setting in pairs),
        "gain": {
            name: {baseline: ratio_document(over_workloads(_over(some, baseline))) for baseline in baselines(studies)}
            for name, some in grouped(pairs, lambda pair: class_of(kind(pair[0].situation))).items()
        },
        "loss": _losses(losses),
        "compared": _compared(studies, batch=batch),
        "told_apart": _detectable_loss(pairs, batch=batch),
        "right": sum(is_tied_with_best(study, setting, batch=batch) for study, setting in pairs),
        "counter_examples": _counter_examples(pairs, losses),
    }


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
        return mean <= max(_MARGIN, _Z95 * sd)
    return mean + _Z95 * sd <= _MARGIN


def _over(pairs: Sequence[tuple[StudyEvidence, Setting]], name: str) -> list[tuple[str, float]]:
    return [(study.workload, study.surface.log_ratio(study.baselines[name], setting)[0]) for study, setting in pairs]


def _losses(losses: Sequence[tuple[StudyEvidence, float]]) -> dict[str, Any] | None:
    """Return the median and the worst loss as shares of the best found's rate, 0.03 for 3 %."""
    if not losses:
        return None
    worst = max(losses, key=lambda each: each[1])
    return {
        "median": -math.expm1(-median(value for _, value in losses)),
        "worst": -math.expm1(-worst[1]),
        "worst_study": worst[0].name,
    }


def _compared(studies: Sequence[StudyEvidence], *, batch: bool) -> dict[str, Any] | None:
    """Return how many settings the best found is the best of, in the median study and in the least."""
    n = [study.n_compared(batch=batch) for study in studies]
    return {"median": median(n), "least": min(n)} if n else None


def _detectable_loss(pairs: Sequence[tuple[StudyEvidence, Setting]], *, batch: bool) -> float | None:
    """Return the smallest loss against the best setting found that the median study can detect, as a share.

    None where it is the best found itself.
    """
    best = [(study, setting, study.best_found(batch=batch)) for study, setting in pairs]
    needed = [_Z95 * study.surface.log_ratio(setting, other)[1] for study, setting, other in best if setting != other]
    return -math.expm1(-max(_MARGIN, median(needed))) if needed else None


def _counter_examples(
    pairs: Sequence[tuple[StudyEvidence, Setting]], losses: Sequence[tuple[StudyEvidence, float]]
) -> list[dict[str, Any]]:
    """Return the studies in which the choice is surely worse than the default, or loses a tenth of the best."""
    counter_examples = []
    for (study, setting), (_, lost) in zip(pairs, losses, strict=True):
        mean, sd = study.surface.log_ratio(study.default, setting)
        worse = mean < -_MARGIN and mean + _Z95 * sd < 0
        if worse or lost > _BAD_LOSS:
            counter_examples.append(
                {
                    "study": study.name,
                    **situation_document(study.situation),
                    "over_default": math.exp(mean),
                    "low": math.exp(mean - _Z95 * sd),
                    "high": math.exp(mean + _Z95 * sd),
                    "of_best": math.exp(-lost),
                }
            )
    return sorted(counter_examples, key=lambda each: each["of_best"])


def situation_document(situation: Situation) -> dict[str, Any]:
    """Return which workload and mode a situation is, and of what kind."""
    return {"workload": situation.workload, "mode": situation.mode, **kind(situation)}


def kind(situation: Situation) -> dict[str, Any]:
    """Return the kind of machine and build: what is expected of a setting is told by it."""
    machine = situation.machine
    quota = "" if machine.cpu_quota is None else f", quota {machine.cpu_quota:g}"
    plural = "s" if machine.physical_cores > 1 else ""
    return {
        "shape": f"{machine.physical_cores} core{plural}{quota}",
        "pool": situation.pool,
        "onednn": situation.onednn,
        "quota": machine.cpu_quota is not None,
    }
