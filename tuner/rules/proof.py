"""Proof: the rules that the other workloads, machines or shapes would have given, on those that were left out.

Beside the rules, followed everywhere, stands the policy: the same rules with the step that does no harm
(`tuner.rules.policy`), learned from the others too. It is what `tftune recommend` follows.

Every figure is a geometric mean over workloads of rates relative to the best setting found in the study, at the
workload's own batch size where rules on threads are looked at, at any where those on batches are; beside them stand
the baselines, and Wang et al.'s formula among them, as recalled. What the policy gains over each is told by class of
strata (`tuner.rules.strata.CLASSES`): how much there is to gain differs too much between these for one average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from tuner.rules.average import over_workloads, ratio_document
from tuner.rules.evidence import StudyEvidence
from tuner.rules.gains import baselines, is_tied_with_best, kind, loss, situation_document
from tuner.rules.recipe import Recipe
from tuner.rules.strata import class_of, grouped
from tuner.rules.table import TrainingTable
from tuner.space.setting import Setting

RULES = "rules"
"""The rules, followed in every stratum."""
POLICY = "policy"
"""The rules where a gain of theirs is shown, else the default."""
K = TypeVar("K", bound=Hashable)
RecipesOf = Callable[[StudyEvidence], tuple[Recipe, ...]]
Learned = Callable[[Callable[[StudyEvidence], bool]], RecipesOf]
"""What rules that were learned without the studies of which it is said, give in a study."""
ONE_BY_ONE, FOLDS = 40, 5  # of more kinds than the first, a fifth is left out at a time


def prove(table: TrainingTable, learned: Learned, cautious: Learned) -> dict[str, Any]:
    """Return the held-out tables: by workload, machine and shape of a machine; None where there is only one of them.

    `learned` gives what rules that were learned without some studies follow, `cautious` what their policy does. Shapes
    are left out on all machines at once, such as every quota of one CPU; where each is that of one machine, nothing new
    is said by it.
    """
    shapes = {(_shape(study), study.host) for study in table.studies}
    told_by_machine = len(shapes) == len({host for _, host in shapes}) == len({shape for shape, _ in shapes})
    return {
        "by_workload": _held_out(table, learned, cautious, "workload", lambda study: study.workload),
        "by_machine": _held_out(table, learned, cautious, "machine", lambda study: study.host),
        "by_shape": None if told_by_machine else _held_out(table, learned, cautious, "shape of a machine", _shape),
    }


def _shape(study: StudyEvidence) -> str:
    return str(situation_document(study.situation)["shape"])


def left_out(
    studies: Sequence[StudyEvidence], learned: Learned, key: Callable[[StudyEvidence], Hashable]
) -> list[tuple[Recipe, ...]]:
    """Return for each study the recipes that the rules learned without its like give, the later on top."""
    fold = folds(studies, key)
    recipes_by_study: dict[int, tuple[Recipe, ...]] = {}
    for each in sorted(set(fold.values())):
        out = frozenset(kind for kind, number in fold.items() if number == each)
        follow = learned(_among(out, key))
        recipes_by_study |= {i: follow(study) for i, study in enumerate(studies) if key(study) in out}
    return [recipes_by_study[i] for i in range(len(studies))]


def folds(
    studies: Sequence[StudyEvidence],
    key: Callable[[StudyEvidence], K],
    *,
    at_most: int = ONE_BY_ONE,
    parts: int = FOLDS,
) -> dict[K, int]:
    """Return in which fold each kind of study is left out: one by one, or in `parts` where there are over `at_most`."""
    kinds = list(dict.fromkeys(key(study) for study in studies))
    n_folds = len(kinds) if len(kinds) <= at_most else min(parts, len(kinds))
    return {each: number % n_folds for number, each in enumerate(kinds)}


def _among(kinds: frozenset[Hashable], key: Callable[[StudyEvidence], Hashable]) -> Callable[[StudyEvidence], bool]:
    return lambda study: key(study) in kinds


def _held_out(
    table: TrainingTable, learned: Learned, cautious: Learned, what: str, key: Callable[[StudyEvidence], Hashable]
) -> dict[str, Any] | None:
    studies = table.studies
    kinds = {key(study) for study in studies}
    if len(kinds) < 2:
        return None
    recipes = {POLICY: left_out(studies, cautious, key), RULES: left_out(studies, learned, key)}
    settings = {
        name: [study.setting(*each) for study, each in zip(studies, per_study, strict=True)]
        for name, per_study in recipes.items()
    } | {name: [study.baselines[name] for study in studies] for name in baselines(studies)}
    baseline_names = [name for name in settings if name not in recipes]
    return {
        "what": what,
        "kinds": len(kinds),
        "one_by_one": len(kinds) <= ONE_BY_ONE,
        "studies": len(studies),
        "rows": [_row(table, name, each) for name, each in settings.items()],
        "over": {name: _over(studies, each, settings[POLICY]) for name, each in settings.items() if name != POLICY},
        "each": [
            {
                "study": study.name,
                **situation_document(study.situation),
                "recipe": [recipe.words(study.situation.pool) for recipe in recipes[RULES][i]],
                "over_default": _over_default(study, settings[RULES][i]),
                "policy": [recipe.words(study.situation.pool) for recipe in recipes[POLICY][i]],
                "policy_over_default": _over_default(study, settings[POLICY][i]),
                "of_best": {
                    name: math.exp(-loss(study, each[i], batch=table.of_batch)) for name, each in settings.items()
                },
                "best_over": {
                    name: math.exp(
                        study.surface.log_ratio(study.baselines[name], study.best_found(batch=table.of_batch))[0]
                    )
                    for name in baseline_names
                },
            }
            for i, study in enumerate(studies)
        ],
    }


def _row(table: TrainingTable, name: str, settings: Sequence[Setting]) -> dict[str, Any]:
    pairs = list(zip(table.studies, settings, strict=True))
    losses = [(study, loss(study, setting, batch=table.of_batch)) for study, setting in pairs]
    worst = max(losses, key=lambda each: each[1])
    return {
        "name": name,
        "of_best": ratio_document(over_workloads((study.workload, -lost) for study, lost in losses)),
        "worst": math.exp(-worst[1]),
        "worst_study": worst[0].name,
        "worst_is": situation_document(worst[0].situation),
        "right": sum(is_tied_with_best(study, setting, batch=table.of_batch) for study, setting in pairs),
        "measured": sum(setting in study.surface.measured for study, setting in pairs),
    }


def _over_default(study: StudyEvidence, setting: Setting) -> float:
    return math.exp(study.surface.log_ratio(study.default, setting)[0])


def _over(
    studies: Sequence[StudyEvidence], theirs: Sequence[Setting], policy_settings: Sequence[Setting]
) -> dict[str, Any]:
    """Return the rate under our settings over that under theirs, by class of strata."""
    each = grouped(zip(studies, theirs, policy_settings, strict=True), lambda row: class_of(kind(row[0].situation)))
    return {
        name: ratio_document(over_workloads((study.workload, study.surface.log_ratio(a, b)[0]) for study, a, b in rows))
        for name, rows in each.items()
    }
