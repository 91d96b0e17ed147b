"""Hypotheses: the rules that simulated studies would give, each with the measured study that would test it.

For machines with more cores than anyone has measured on, a simulation says what to look for. What a model of the
machine predicts of a workload is a study in the form that rules are learned from. It proves nothing: nothing of it is
measured, and none is ever among the evidence of a rule. A hypothesis becomes a rule when studies of real processes say
the same.

Notation
    g_s(r)  predicted log-ratio to the default of what a recipe r means in study s; g_s(b) that of a guide b
    m_s(r)  min(g_s(r), min_b g_s(r) - g_s(b)): what r gains over the best that is recommended without it
The test of a rule is the study in which m_s is largest, of those that it is about: there it has most to lose.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

from msgspec import Struct, field

from tuner.frameworks.framework import Build
from tuner.machine.host import Machine, host_of
from tuner.model.configuration import EXECUTOR
from tuner.model.graph import Features
from tuner.rules.evidence import COMPACT_BASELINE, StudyEvidence, apply, by_width
from tuner.rules.learn import LearnPlan
from tuner.rules.recipe import (
    BATCH,
    BINDING,
    FRAMEWORK,
    ONEDNN,
    TERMS,
    THREADS,
    Recipe,
    acts_on,
    speaks_of,
    thread_recipes,
)
from tuner.rules.rule import recipe_words
from tuner.rules.situation import Condition, Situation
from tuner.rules.strata import over_workloads
from tuner.rules.surface import Measured, ResponseSurface
from tuner.rules.table import first_rule, thread_table
from tuner.space.setting import Setting, distinct
from tuner.space.term import OPENMP, SHARE, WIDTH
from tuner.stats.estimate import Array
from tuner.study.subject import Document, Values, WorkloadFacts

TOLD_APART = math.log(1.02)
"""What a comparison tells apart (log-ratio)."""
HELPED = math.log(1.05)
"""A setting that gains as much as this (log-ratio) matters to people."""
_DEFAULT = FRAMEWORK.catalogue.default
_INTEL = next(each.name for each in FRAMEWORK.baselines if each.at_best_batch)
(_WANG,) = (each.name for each in FRAMEWORK.width_guides)
_SEVERAL = Recipe.of({EXECUTOR.slots: WIDTH.name, EXECUTOR.threads: SHARE.name, EXECUTOR.team: SHARE.name})
SIMULATED = "simulated"
_SD = 0.01  # log scale: what a simulation is known to within, as far as its own differences go

Predict = Callable[[Setting, Sequence[Setting]], Array]
"""The predicted log-ratios of settings to a reference, shape (settings,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What is simulated: a workload with its graph's features, the build that it was profiled in, and a machine."""

    workload: WorkloadFacts
    features: Features
    build: Build
    machine: Machine
    predict: Predict


def simulated_study(of: Simulated) -> StudyEvidence:
    """Return what a study would say that had tried what any rule could set, and all guides, without noise."""
    machine, build, batch_size = of.machine, of.build, of.workload.batch_size
    runtime = build.to_dict()
    pool = FRAMEWORK.pool(runtime)
    situation = Situation(
        workload=of.workload.name,
        mode=of.workload.mode,
        batch_size=batch_size,
        features=of.features,
        machine=machine,
        pool=pool,
        onednn=FRAMEWORK.has_onednn(runtime),
    )
    knobs = [name for name in TERMS if speaks_of(name, on_gpu=False) and acts_on(name, pool) and name != ONEDNN]
    values = {name: FRAMEWORK.knobs[name].default(machine, build, batch_size) for name in knobs}
    default = Setting.of(values | {BATCH: batch_size})
    guides = {each.name: each.rule(machine) for each in FRAMEWORK.baselines if not each.needs}
    compact = guides[COMPACT_BASELINE][BINDING] if pool == OPENMP else None
    baselines = {name: apply(default, rule, None) for name, rule in guides.items()}
    baselines |= by_width(default, machine, of.features.width, compact)
    recipes = [recipe for recipe in thread_recipes() if ONEDNN not in recipe.to_dict()]
    meant = [apply(default, recipe.values(situation.scale), compact) for recipe in recipes]
    settings = [each for each in distinct([*baselines.values(), *meant]) if each != default]
    gains = of.predict(default, settings)
    return StudyEvidence(
        name=f"{SIMULATED} {of.workload.name} {of.workload.mode} on {machine.id}",
        created="",
        host=host_of(machine),
        shape_id=machine.id,
        runtime=build.version,
        situation=situation,
        default=default,
        baselines=baselines,
        compact=compact,
        batches=(batch_size,),
        covers_threads=True,
        surface=ResponseSurface(
            default,
            [
                Measured(setting=setting, log_ratio=float(gain), variance=_SD**2)
                for setting, gain in zip(settings, gains, strict=True)
            ],
        ),
    )


def one_operator(study: StudyEvidence) -> Setting:
    """Return one operator at a time on all usable cores."""
    return apply(study.default, FRAMEWORK.threads_on(study.situation.machine.usable_cores), study.compact)


class MachineRow(Struct, frozen=True, kw_only=True):
    """What is predicted on a machine in a build, over the default: geometric means over workloads.

    `one_operator` has one operator at a time on all usable cores, `best` is the best of all settings that rules and
    guides speak of; `helped` counts the workloads that it gains 5 % of. `most_by_width` is the workload that pools by
    the graph's width gain most of over one operator at a time, and how much. `spinning` is what it gains, or costs,
    that the threads of several teams spin for 200 ms instead of sleeping at once, over the workloads that are two
    operators wide: None where there are none, and on the Eigen pool.
    """

    machine: str
    cores: int
    pool: str
    workloads: int
    one_operator: float
    intel: float
    wang: float
    best: float
    helped: int
    most_by_width: tuple[str, float]
    spinning: float | None


class DecidingComparison(Struct, frozen=True, kw_only=True):
    """The comparison that would test a hypothesis: where, of what, of `b` with `a`, and the ratio that it expects.

    `a` is the best of the guides there, by its name, or the default where a guide says the same as the rule.
    """

    machine: str
    pool: str
    workload: str
    mode: str
    params: dict[str, Any]
    a: str
    b: Values
    ratio: float


class Hypothesis(Struct, frozen=True, kw_only=True):
    """A rule that simulated studies give: its condition and recipe in words, and what it is predicted to gain."""

    if_: str = field(name="if")
    then: str
    terms: dict[str, str] = field(name="recipe")
    over: dict[str, float]
    """Over the default and the guides, by their names: geometric means over workloads."""
    workloads: tuple[str, ...]
    studies: int
    test: DecidingComparison


class HypothesesResult(Document, frozen=True, kw_only=True):
    """What a model of machines says that rules may be. Nothing of it is measured."""

    measured: OneOf[False] = False
    workloads: tuple[str, ...]
    studies: int
    least_workloads: int
    """Of fewer no rule is learned."""
    machines: tuple[MachineRow, ...]
    rules: tuple[Hypothesis, ...]


def hypotheses(
    studies: Sequence[tuple[str, StudyEvidence]], plan: LearnPlan, params: Mapping[str, dict[str, Any]]
) -> HypothesesResult:
    """Return what simulated studies say, each with the words of its machine; raises ValueError of none.

    `params` are the parameters of the workloads, by name.
    """
    if not studies:
        raise ValueError("expected at least one study")
    own = [study for _, study in studies]
    words = {study.name: text for text, study in studies}
    workloads = sorted({study.workload for study in own})
    rules = _rules(own, words, plan, params) if len(workloads) >= plan.min_workloads else ()
    return HypothesesResult(
        workloads=tuple(workloads),
        studies=len(studies),
        least_workloads=plan.min_workloads,
        machines=tuple(_rows(studies)),
        rules=rules,
    )


def _rows(studies: Sequence[tuple[str, StudyEvidence]]) -> list[MachineRow]:
    """Return a row for each machine and build, in the order of the studies."""
    by_machine: dict[tuple[str, str], list[StudyEvidence]] = defaultdict(list)
    for text, study in studies:
        by_machine[study.situation.pool, text].append(study)
    return [_row(text, pool, of_machine) for (pool, text), of_machine in by_machine.items()]


def _row(text: str, pool: str, studies: Sequence[StudyEvidence]) -> MachineRow:
    best = [_gain(study, study.best_found(batch=False)) for study in studies]
    by_width = [study.surface.log_ratio(one_operator(study), study.baselines[_WANG])[0] for study in studies]
    widest = max(range(len(studies)), key=by_width.__getitem__)
    wide = [study for study in studies if study.situation.pools > 1] if pool == OPENMP else []
    return MachineRow(
        machine=text,
        cores=studies[0].situation.machine.usable_cores,
        pool=pool,
        workloads=len({study.workload for study in studies}),
        one_operator=_mean(studies, [_gain(study, one_operator(study)) for study in studies]),
        intel=_mean(studies, [_gain(study, study.baselines[_INTEL]) for study in studies]),
        wang=_mean(studies, [_gain(study, study.baselines[_WANG]) for study in studies]),
        best=_mean(studies, best),
        helped=len({study.workload for study, gain in zip(studies, best, strict=True) if gain >= HELPED}),
        most_by_width=(studies[widest].workload, math.exp(by_width[widest])),
        spinning=_mean(wide, [_spinning(study) for study in wide]) if wide else None,
    )


def _spinning(study: StudyEvidence) -> float:
    """Return what teams of several pools gain by spinning for 200 ms instead of not at all (log-ratio)."""
    spinning, sleeping = (study.setting(_SEVERAL, Recipe.of({EXECUTOR.blocktime: ms})) for ms in ("200", "0"))
    return study.surface.log_ratio(sleeping, spinning)[0]


def _rules(
    studies: Sequence[StudyEvidence], words: Mapping[str, str], plan: LearnPlan, params: Mapping[str, dict[str, Any]]
) -> tuple[Hypothesis, ...]:
    """Return the rules that are learned as from measured studies, in the order in which the first one holds."""
    learned = thread_table(studies).learn(plan)
    result = []
    for number, (condition, recipe) in enumerate(learned):
        own = [study for study in studies if first_rule(learned, study) == number]
        if own:
            result.append(_hypothesis(condition, recipe, own, words, params))
    return tuple(result)


def _hypothesis(
    condition: Condition,
    recipe: Recipe,
    studies: Sequence[StudyEvidence],
    words: Mapping[str, str],
    params: Mapping[str, dict[str, Any]],
) -> Hypothesis:
    settings = [study.setting(recipe) for study in studies]
    gains = [_gain(study, setting) for study, setting in zip(studies, settings, strict=True)]
    rivals = [_rivals(study, setting) for study, setting in zip(studies, settings, strict=True)]
    # Where a guide says the same, the study that gains most over the default.
    telling = max(range(len(studies)), key=lambda i: (round(min(gains[i], *rivals[i].values()), 3), gains[i]))
    pools = {study.situation.pool for study in studies}
    return Hypothesis(
        if_=str(condition),
        then=recipe_words(THREADS, recipe, pools.pop() if len(pools) == 1 else None),
        terms=recipe.to_dict(),
        over={_DEFAULT: _mean(studies, gains)}
        | {name: _mean(studies, [each[name] for each in rivals]) for name in rivals[0]},
        workloads=tuple(sorted({study.workload for study in studies})),
        studies=len(studies),
        test=_test(
            studies[telling],
            settings[telling],
            words[studies[telling].name],
            params.get(studies[telling].workload, {}),
        ),
    )


def _test(study: StudyEvidence, setting: Setting, machine: str, params: dict[str, Any]) -> DecidingComparison:
    """Return the comparison with what is best without the rule, of those that it differs from."""
    others = {_DEFAULT: _gain(study, setting)} | _rivals(study, setting)
    told_apart = {name: value for name, value in others.items() if abs(value) >= TOLD_APART} or others
    a = min(told_apart, key=lambda name: told_apart[name])
    return DecidingComparison(
        machine=machine,
        pool=study.situation.pool,
        workload=study.workload,
        mode=study.situation.mode,
        params=params,
        a=a,
        b=setting.to_dict(),
        ratio=math.exp(told_apart[a]),
    )


def _rivals(study: StudyEvidence, setting: Setting) -> dict[str, float]:
    """Return the log-ratio of a setting to each guide's; to one that is the same it is 0."""
    others = {name: each for name, each in study.baselines.items() if name != _DEFAULT}
    return {name: study.surface.log_ratio(each, setting)[0] for name, each in others.items()}


def _gain(study: StudyEvidence, setting: Setting) -> float:
    return study.surface.log_ratio(study.default, setting)[0]


def _mean(studies: Sequence[StudyEvidence], log_ratios: Sequence[float]) -> float:
    """Return the geometric mean over workloads."""
    both = zip(studies, log_ratios, strict=True)
    return over_workloads((study.workload, value) for study, value in both).ratio
