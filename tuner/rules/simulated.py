"""Simulated studies: what a model of the machine predicts of a workload, in the form that rules are learned from.

They are hypotheses. Nothing of them is measured, and none is ever among the evidence of a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.frameworks.framework import Build
from tuner.machine.host import Machine, host_of
from tuner.model.graph import Features
from tuner.rules.evidence import COMPACT_BASELINE, StudyEvidence, apply, by_width
from tuner.rules.recipe import BATCH, BINDING, FRAMEWORK, ONEDNN, TERMS, acts_on, speaks_of, thread_recipes
from tuner.rules.situation import Situation
from tuner.rules.surface import Measured, ResponseSurface
from tuner.space.setting import Setting, distinct
from tuner.space.term import OPENMP
from tuner.stats.estimate import Array
from tuner.study.subject import WorkloadFacts

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
