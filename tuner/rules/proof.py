"""Proof: the rules that the other workloads, or machines, would have given, on those that were left out.

Every figure is a geometric mean over workloads of rates relative to the best setting found in the study, at the
workload's own batch size; beside the rules stand the baselines, and Wang's rule among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tuner.rules.account import baselines, described, is_right, loss
from tuner.rules.average import over_workloads, ratio_document
from tuner.rules.distil import Table, follow
from tuner.rules.evidence import Study
from tuner.rules.learn import LearnPlan
from tuner.rules.recipe import Recipe
from tuner.space.setting import Setting

OURS = "rules"
_ONE_BY_ONE, _FOLDS = 20, 5  # of more kinds than the first, a fifth is left out at a time


def prove(table: Table, plan: LearnPlan) -> dict[str, Any]:
    """Return the held-out tables: by workload and by machine; None where there is only one of them."""
    return {
        "by_workload": _held_out(table, plan, lambda study: study.workload),
        "by_machine": _held_out(table, plan, lambda study: study.machine_id),
    }


def left_out(table: Table, plan: LearnPlan, key: Callable[[Study], Hashable]) -> list[Recipe]:
    """Return for each study the recipe that the rules learned without its like give."""
    kinds = list(dict.fromkeys(key(study) for study in table.studies))
    n_folds = len(kinds) if len(kinds) <= _ONE_BY_ONE else _FOLDS
    fold = {kind: number % n_folds for number, kind in enumerate(kinds)}
    chosen = [Recipe()] * len(table.studies)
    for each in sorted(set(fold.values())):
        out = [fold[key(study)] == each for study in table.studies]
        rules = table.learn(plan, [not is_out for is_out in out])
        for i, study in enumerate(table.studies):
            if out[i]:
                chosen[i] = follow(rules, study)
    return chosen


def _held_out(table: Table, plan: LearnPlan, key: Callable[[Study], Hashable]) -> dict[str, Any] | None:
    studies = table.studies
    if len({key(study) for study in studies}) < 2:
        return None
    recipes = left_out(table, plan, key)
    ours = [study.setting(recipe) for study, recipe in zip(studies, recipes, strict=True)]
    settings = {OURS: ours} | {name: [study.baselines[name] for study in studies] for name in baselines(studies)}
    return {
        "kinds": len({key(study) for study in studies}),
        "studies": len(studies),
        "rows": [_row(name, studies, each) for name, each in settings.items()],
        "over": {name: _over(studies, each, ours) for name, each in settings.items() if name != OURS},
        "each": [
            {
                "study": study.name,
                **described(study.situation),
                "recipe": recipe.words(study.situation.pool),
                "of_best": {name: math.exp(-loss(study, each[i])) for name, each in settings.items()},
                "best_over": {
                    name: math.exp(study.surface.apart(study.baselines[name], study.best)[0])
                    for name in settings
                    if name != OURS
                },
            }
            for i, (study, recipe) in enumerate(zip(studies, recipes, strict=True))
        ],
    }


def _row(name: str, studies: Sequence[Study], settings: Sequence[Setting]) -> dict[str, Any]:
    pairs = list(zip(studies, settings, strict=True))
    losses = [(study, loss(study, setting)) for study, setting in pairs]
    worst = max(losses, key=lambda each: each[1])
    return {
        "name": name,
        "of_best": ratio_document(over_workloads((study.workload, -lost) for study, lost in losses)),
        "worst": math.exp(-worst[1]),
        "worst_study": worst[0].name,
        "worst_is": described(worst[0].situation),
        "right": sum(is_right(study, setting) for study, setting in pairs),
        "measured": sum(setting in study.surface.measured for study, setting in pairs),
    }


def _over(studies: Sequence[Study], theirs: Sequence[Setting], ours: Sequence[Setting]) -> dict[str, Any] | None:
    """Return the rate under our settings over that under theirs."""
    return ratio_document(
        over_workloads(
            (study.workload, study.surface.apart(a, b)[0]) for study, a, b in zip(studies, theirs, ours, strict=True)
        )
    )
