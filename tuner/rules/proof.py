"""Proof: the rules that the other workloads, machines or shapes would have given, on those that were left out.

Beside the rules, followed everywhere, stands the policy: the same rules with the step that does no harm
(`tuner.rules.distil`), learned from the others too. It is what `tftune recommend` follows.

Every figure is a geometric mean over workloads of rates relative to the best setting found in the study, at the
workload's own batch size where rules on threads are looked at, at any where those on batches are; beside them stand
the baselines, and Wang et al.'s formula among them, as recalled. What the policy gains over each is told by class of
strata (`tuner.rules.strata.StratumClass`): how much there is to gain differs too much between these for one average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from tuner.rules.evidence import StudyEvidence
from tuner.rules.gains import baselines, is_tied_with_best, loss
from tuner.rules.recipe import Recipe
from tuner.rules.strata import Count, Ratio, SituationKind, StratumClass, grouped, over_workloads
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


class HeldOutRow(Struct, frozen=True, kw_only=True):
    """What the rules, the policy or a baseline reach of the best setting found, over all studies."""

    name: str
    of_best: Ratio
    worst: float
    worst_study: str
    worst_situation: SituationKind
    n_tied: Count
    n_measured: Count


class HeldOutStudy(Struct, frozen=True, kw_only=True):
    """What rules that had not seen it gave in a study; recipes in words, the later on top."""

    study: str
    situation: SituationKind
    recipe: tuple[str, ...]
    over_default: float
    policy: tuple[str, ...]
    policy_over_default: float
    of_best: dict[str, float]
    """What each row reaches of the best found."""
    best_over: dict[str, float]
    """The best found over each baseline."""


class HeldOut(Struct, frozen=True, kw_only=True):
    """A held-out test: each `unit`, such as a workload, met by the rules of the others."""

    unit: str
    n_units: Count
    one_by_one: bool
    """Otherwise a fifth of them at a time."""
    n_studies: Count
    rows: tuple[HeldOutRow, ...]
    over: dict[str, dict[StratumClass, Ratio]]
    """The policy over each other row, by class of strata."""
    studies: tuple[HeldOutStudy, ...]


class Proof(Struct, frozen=True, kw_only=True):
    """The held-out tests; null where there is only one of what would be left out."""

    by_workload: HeldOut | None
    by_machine: HeldOut | None
    by_shape: HeldOut | None


def prove(table: TrainingTable, learned: Learned, cautious: Learned) -> Proof:
    """Return the held-out tests: by workload, machine and shape of a machine.

    `learned` gives what rules that were learned without some studies follow, `cautious` what their policy does. Shapes
    are left out on all machines at once, such as every quota of one CPU; where each is that of one machine, nothing new
    is said by it.
    """
    shapes = {(_shape(study), study.host) for study in table.studies}
    told_by_machine = len(shapes) == len({host for _, host in shapes}) == len({shape for shape, _ in shapes})
    return Proof(
        by_workload=_held_out(table, learned, cautious, "workload", lambda study: study.workload),
        by_machine=_held_out(table, learned, cautious, "machine", lambda study: study.host),
        by_shape=None if told_by_machine else _held_out(table, learned, cautious, "shape of a machine", _shape),
    )


def _shape(study: StudyEvidence) -> str:
    return str(study.kind.shape)


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
    table: TrainingTable, learned: Learned, cautious: Learned, unit: str, key: Callable[[StudyEvidence], Hashable]
) -> HeldOut | None:
    studies = table.studies
    n_units = len({key(study) for study in studies})
    if n_units < 2:
        return None
    recipes = {POLICY: left_out(studies, cautious, key), RULES: left_out(studies, learned, key)}
    settings = {
        name: [study.setting(*each) for study, each in zip(studies, per_study, strict=True)]
        for name, per_study in recipes.items()
    } | {name: [study.baselines[name] for study in studies] for name in baselines(studies)}
    return HeldOut(
        unit=unit,
        n_units=n_units,
        one_by_one=n_units <= ONE_BY_ONE,
        n_studies=len(studies),
        rows=tuple(_row(table, name, each) for name, each in settings.items()),
        over={name: _over(studies, each, settings[POLICY]) for name, each in settings.items() if name != POLICY},
        studies=tuple(
            _held_out_study(
                study,
                rules=recipes[RULES][i],
                policy=recipes[POLICY][i],
                settings={name: each[i] for name, each in settings.items()},
                batch=table.of_batch,
            )
            for i, study in enumerate(studies)
        ),
    )


def _held_out_study(
    study: StudyEvidence,
    *,
    rules: Sequence[Recipe],
    policy: Sequence[Recipe],
    settings: Mapping[str, Setting],
    batch: bool,
) -> HeldOutStudy:
    best, pool = study.best_found(batch=batch), study.situation.pool
    return HeldOutStudy(
        study=study.name,
        situation=study.kind,
        recipe=tuple(recipe.words(pool) for recipe in rules),
        over_default=_over_default(study, settings[RULES]),
        policy=tuple(recipe.words(pool) for recipe in policy),
        policy_over_default=_over_default(study, settings[POLICY]),
        of_best={name: math.exp(-loss(study, setting, batch=batch)) for name, setting in settings.items()},
        best_over={
            name: math.exp(study.surface.log_ratio(setting, best)[0])
            for name, setting in settings.items()
            if name not in (RULES, POLICY)
        },
    )


def _row(table: TrainingTable, name: str, settings: Sequence[Setting]) -> HeldOutRow:
    pairs = list(zip(table.studies, settings, strict=True))
    losses = [(study, loss(study, setting, batch=table.of_batch)) for study, setting in pairs]
    worst_study, worst = max(losses, key=lambda each: each[1])
    return HeldOutRow(
        name=name,
        of_best=Ratio.of(over_workloads((study.workload, -lost) for study, lost in losses)),
        worst=math.exp(-worst),
        worst_study=worst_study.name,
        worst_situation=worst_study.kind,
        n_tied=sum(is_tied_with_best(study, setting, batch=table.of_batch) for study, setting in pairs),
        n_measured=sum(setting in study.surface.measured for study, setting in pairs),
    )


def _over_default(study: StudyEvidence, setting: Setting) -> float:
    return math.exp(study.surface.log_ratio(study.default, setting)[0])


def _over(
    studies: Sequence[StudyEvidence], theirs: Sequence[Setting], policy_settings: Sequence[Setting]
) -> dict[StratumClass, Ratio]:
    """Return the rate under our settings over that under theirs, by class of strata."""
    rows = zip(studies, theirs, policy_settings, strict=True)
    by_class = grouped(rows, lambda row: row[0].kind.stratum_class)
    return {
        name: Ratio.of(over_workloads((study.workload, study.surface.log_ratio(a, b)[0]) for study, a, b in each))
        for name, each in by_class.items()
    }
