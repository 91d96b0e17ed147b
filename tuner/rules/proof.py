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
from tuner.rules.evidence import Study
from tuner.rules.learn import LearnPlan
from tuner.rules.recipe import Recipe
from tuner.rules.table import Table, follow
from tuner.space.setting import Setting

OURS = "rules"
_ONE_BY_ONE, _FOLDS = 40, 5  # of more kinds than the first, a fifth is left out at a time


def prove(table: Table, plan: LearnPlan) -> dict[str, Any]:
    """Return the held-out tables: by workload and by machine; None where there is only one of them.

    Of a single machine its shapes are left out, and said to be that.
    """
    hosts = {study.host for study in table.studies}
    by_host = len(hosts) > 1
    return {
        "by_workload": _held_out(table, plan, "workload", lambda study: study.workload),
        "by_machine": _held_out(
            table,
            plan,
            "machine" if by_host else "shape of the machine",
            lambda study: study.host if by_host else study.machine_id,
        ),
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


def _held_out(table: Table, plan: LearnPlan, what: str, key: Callable[[Study], Hashable]) -> dict[str, Any] | None:
    studies = table.studies
    kinds = {key(study) for study in studies}
    if len(kinds) < 2:
        return None
    recipes = left_out(table, plan, key)
    ours = [study.setting(first, own) for study, first, own in zip(studies, table.before, recipes, strict=True)]
    settings = {OURS: ours} | {name: [study.baselines[name] for study in studies] for name in baselines(studies)}
    return {
        "what": what,
        "kinds": len(kinds),
        "one_by_one": len(kinds) <= _ONE_BY_ONE,
        "studies": len(studies),
        "rows": [_row(table, name, each) for name, each in settings.items()],
        "over": {name: _over(studies, each, ours) for name, each in settings.items() if name != OURS},
        "each": [
            {
                "study": study.name,
                **described(study.situation),
                "recipe": recipe.words(study.situation.pool),
                "over_default": math.exp(study.surface.apart(study.default, ours[i])[0]),
                "of_best": {name: math.exp(-_loss(table, study, each[i])) for name, each in settings.items()},
                "best_over": {
                    name: math.exp(study.surface.apart(study.baselines[name], _best(table, study))[0])
                    for name in settings
                    if name != OURS
                },
            }
            for i, (study, recipe) in enumerate(zip(studies, recipes, strict=True))
        ],
    }


def _best(table: Table, study: Study) -> Setting:
    return study.surface.best() if table.of_batch else study.best


def _loss(table: Table, study: Study, setting: Setting) -> float:
    return loss(study, setting, batch=table.of_batch)


def _row(table: Table, name: str, settings: Sequence[Setting]) -> dict[str, Any]:
    pairs = list(zip(table.studies, settings, strict=True))
    losses = [(study, _loss(table, study, setting)) for study, setting in pairs]
    worst = max(losses, key=lambda each: each[1])
    return {
        "name": name,
        "of_best": ratio_document(over_workloads((study.workload, -lost) for study, lost in losses)),
        "worst": math.exp(-worst[1]),
        "worst_study": worst[0].name,
        "worst_is": described(worst[0].situation),
        "right": sum(is_right(study, setting, batch=table.of_batch) for study, setting in pairs),
        "measured": sum(setting in study.surface.measured for study, setting in pairs),
    }


def _over(studies: Sequence[Study], theirs: Sequence[Setting], ours: Sequence[Setting]) -> dict[str, Any] | None:
    """Return the rate under our settings over that under theirs."""
    return ratio_document(
        over_workloads(
            (study.workload, study.surface.apart(a, b)[0]) for study, a, b in zip(studies, theirs, ours, strict=True)
        )
    )
