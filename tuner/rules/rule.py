"""Rules, and the set of them that was distilled: what is kept in a file, and applied to the next workload.

The types are the file's format: what `tftune rules --json` prints, and what its published schema is made from.

Whether to follow a rule in a situation is decided by its evidence. Where that shows no gain in such a stratum
(`tuner.rules.strata`), or the very workload's own study speaks against the rule, the advice is to keep the default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final
from typing import Literal as OneOf

import msgspec
from msgspec import Meta, Struct, field

from tuner.errors import BadInputError
from tuner.machine.host import Machine
from tuner.measure.recommendation import MUCH_LONGER
from tuner.rules.gains import CounterExample, Evidence
from tuner.rules.proof import Proof
from tuner.rules.recipe import BATCH, FRAMEWORK, GROUPS, LATENCY, PROCESSES, TERMS, THREADS, Recipe
from tuner.rules.situation import FEATURE, FEATURES, Condition, Literal, Situation
from tuner.rules.strata import (
    AdviceByStratum,
    Count,
    Expected,
    Ratio,
    SituationKind,
    Stratum,
    StratumClass,
    StratumEvidence,
    is_gain,
)
from tuner.space.groups import INSTANCES
from tuner.space.term import OPENMP

SCHEMA: Final = 4
KEEP = {
    THREADS: "keep TensorFlow's defaults",
    BATCH: "keep the workload's own batch size",
    PROCESSES: "keep one process",
    LATENCY: "keep one process",
}
_HINT = "create them again: tftune rules --save, or tftune rules --json --out FILE"


class Example(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule set in one of its studies: environment variables, arguments of the step, and how many processes."""

    situation: SituationKind
    env: dict[str, str]
    arguments: dict[str, int]
    processes: Count = 1


class Rule(Struct, frozen=True, kw_only=True):
    """Under a condition, a recipe; with its evidence, and where it is advised."""

    if_: str = field(name="if")
    then: str
    """The condition and the recipe in words."""
    literals: tuple[Literal, ...] = field(name="condition")
    terms: dict[str, str] = field(name="recipe")
    evidence: Evidence
    advice: AdviceByStratum
    example: Example | None

    def __post_init__(self) -> None:
        """Raise ValueError for a knob, a term or a feature that is not known."""
        _check(self.terms)
        for literal in self.literals:
            if literal.feature not in FEATURE:
                raise ValueError(f"unknown feature {literal.feature}")

    @classmethod
    def of(
        cls,
        group: str,
        condition: Condition,
        recipe: Recipe,
        *,
        evidence: Evidence,
        advice: AdviceByStratum,
        example: Example | None,
    ) -> Rule:
        """Return a rule of a group (`GROUPS`) with its words."""
        return cls(
            if_=str(condition),
            then=recipe_words(group, recipe, _pool(condition)),
            literals=condition.literals,
            terms=recipe.to_dict(),
            evidence=evidence,
            advice=advice.priced(float(recipe.to_dict().get(BATCH, 1))),
            example=example,
        )

    @property
    def condition(self) -> Condition:
        """Return when it applies."""
        return Condition(self.literals)

    @property
    def recipe(self) -> Recipe:
        """Return what it sets."""
        return Recipe.of(self.terms)


def recipe_words(group: str, recipe: Recipe, pool: str | None) -> str:
    """Return what a rule of a group sets, as a person would say it; of a build with that pool, if it is said."""
    return KEEP[group] if recipe == Recipe() else recipe.words(pool)


def _check(terms: Mapping[str, str]) -> None:
    """Raise ValueError for a knob or a term that is not known."""
    for knob, name in terms.items():
        is_known = 0 < float(name) < math.inf if knob == BATCH else name in TERMS.get(knob, {})
        if not is_known:
            raise ValueError(f"unknown recipe {knob} {name}")


def _pool(condition: Condition) -> str | None:
    """Return the pool that a condition asks for, None if it asks for none."""
    for literal in condition.literals:
        if literal.feature == OPENMP:
            return "eigen" if literal.below else OPENMP
    return None


class ShapeCoverage(Struct, frozen=True, kw_only=True):
    """A shape of a machine that there are studies of: the machine, what of it could be used, and how many."""

    host: str
    shape: str
    n_studies: Count


class Coverage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the evidence is from: hosts, their shapes, the range of each feature, workloads by mode, builds."""

    n_studies: Count
    hosts: tuple[str, ...]
    """The machines; each may be there in several shapes."""
    ranges: dict[str, tuple[float, float]]
    shapes: dict[str, ShapeCoverage]
    workloads: dict[str, tuple[str, ...]]
    runtimes: dict[str, Count]

    def outside(self, situation: Situation) -> list[str]:
        """Return in which respects a situation lies outside of the evidence, as sentences' parts."""
        return self._outside(situation.values())

    def outside_on(self, machine: Machine) -> list[str]:
        """Return the same of a machine, whatever runs on it."""
        return self._outside({each.name: float(each.on_machine(machine)) for each in FEATURES if each.on_machine})

    def _outside(self, values: Mapping[str, float]) -> list[str]:
        reasons = [] if self.n_studies else ["there are no studies"]
        for feature in (each for each in FEATURES if each.name in values):
            value, ends = values[feature.name], self.ranges.get(feature.name)
            if math.isnan(value) or ends is None or ends[0] <= value <= ends[1]:
                continue
            unit = f" {feature.unit}" if feature.unit else ""
            if feature.is_binary:
                reasons.append(f"{feature.words[0 if value else 1]}: no study")
            else:
                span = f"{ends[0]:.3g}" if ends[0] == ends[1] else f"{ends[0]:.3g} to {ends[1]:.3g}"
                reasons.append(f"{feature.words[0]}: {value:.3g}{unit}, the studies cover {span}")
        return reasons


class Headline(Struct, frozen=True, kw_only=True):
    """What is expected in a class of strata, and in how many of its studies a rule is followed."""

    class_: StratumClass = field(name="class")
    n_studies: Count
    n_followed: Count
    expected: Expected


class PredictedGain(Struct, frozen=True, kw_only=True):
    """What a model of the machine expects of a recipe on machines and builds of a kind that no study is of.

    `basis` says from how far, such as "profiles of 2 cores".
    """

    kind: Stratum
    terms: dict[str, str] = field(name="recipe")
    gain: Ratio
    call: Ratio | None
    basis: str

    def __post_init__(self) -> None:
        """Raise ValueError for a knob or a term that is not known."""
        _check(self.terms)

    @property
    def recipe(self) -> Recipe:
        """Return what it is of."""
        return Recipe.of(self.terms)


class RuleList(Struct, frozen=True, kw_only=True):
    """The rules of one group, the first of which that holds is followed; what they are from, and their proof."""

    headline: tuple[Headline, ...]
    rules: tuple[Rule, ...]
    default_evidence: Evidence | None
    """The evidence of keeping what is there in the studies in which no rule holds; null where there are none."""
    proof: Proof
    coverage: Coverage

    def rule(self, situation: Situation) -> Rule | None:
        """Return the rule to follow; None for keeping what is there."""
        values = situation.values()
        return next((rule for rule in self.rules if rule.condition.holds(values)), None)

    def outside(self, situation: Situation) -> list[str]:
        """Return why nothing can be promised in a situation: what was not seen, or is not known of it."""
        values = situation.values()
        used_features = dict.fromkeys(literal.feature for rule in self.rules for literal in rule.literals)
        unknown = [f"{FEATURE[name].words[0]} is not known" for name in used_features if math.isnan(values[name])]
        return unknown + self.coverage.outside(situation)


class Provenance(Struct, frozen=True, kw_only=True):
    """When rules were made, by which version, from which studies, and by which plan (`tuner.rules.learn.LearnPlan`).

    Times are ISO 8601; of the studies, that in which each was begun. `excluded` names studies by the reason.
    """

    tftune: str
    created: Annotated[str, Meta(min_length=len("2026-01-01"))]
    n_studies: Count
    first_study: str
    last_study: str
    filters: dict[str, str]
    excluded: dict[str, tuple[str, ...]]
    level: Annotated[float, Meta(gt=0)]
    min_gain: float
    margin: Annotated[float, Meta(ge=0)]
    min_workloads: Count


class RuleSet(Struct, frozen=True, kw_only=True):
    """Everything that was distilled: the rules of each group (`GROUPS`), and how they were made."""

    schema: OneOf[4] = SCHEMA
    device: str = "cpu"
    """The kind of device that all of it is about."""
    provenance: Provenance
    sources: dict[str, str] = field(default_factory=lambda: {each.name: each.source for each in FRAMEWORK.width_guides})
    """Of the baselines that are a paper's formula."""
    groups: dict[str, RuleList]
    """By group; what no study tells of is not there."""
    predicted: dict[str, tuple[PredictedGain, ...]] = field(default_factory=dict)
    """By group, what a model of the machine expects where nothing was measured; no rule rests on it."""

    def __post_init__(self) -> None:
        """Raise ValueError for a group that is not known."""
        unknown = [name for name in (*self.groups, *self.predicted) if name not in GROUPS]
        if unknown:
            raise ValueError(f"unknown group {unknown[0]}")

    @classmethod
    def from_document(cls, document: Any) -> RuleSet:
        """Return stored rules; raises BadInputError for what are none, or of another format."""
        if not isinstance(document, Mapping) or "groups" not in document:
            raise BadInputError("it is not a rules file", _HINT)
        if document.get("schema") != SCHEMA:
            found = f"rules have format {document.get('schema')}"
            raise BadInputError(f"{found}, this version of tftune reads format {SCHEMA}", _HINT)
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise BadInputError(f"the rules are invalid ({error})", _HINT) from error


class AdviceReason(StrEnum):
    """Whether a rule is to be followed; each code but the first keeps the default."""

    FOLLOW = "follow"
    NO_GAIN = "no-gain"
    """The evidence of the stratum puts the rule at or below the default within the margin, or shows no gain."""
    NO_EVIDENCE = "no-evidence"
    """No study is of such a build."""
    OWN_STUDY = "own-study"
    """A study of this very workload, in the stratum, puts the rule at or below the default within the margin."""
    NO_RULE = "no-rule"
    """No rule applies."""
    BY_RULE = "by-rule"
    """The rule that applies is to keep the default, or comes to that on so few cores."""


class AdviceCode(StrEnum):
    """What `tftune recommend` comes to, for a program."""

    FOLLOW = "follow"
    KEEP_DEFAULT = "keep-default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDecision:
    """An advice, and what it rests on: the evidence of a stratum, or a study of this very workload."""

    advice: AdviceReason
    stratum: StratumEvidence | None = None
    own_study: CounterExample | None = None


def decide(rule: Rule | None, situation: Situation) -> RuleDecision:
    """Return whether to follow a rule: the very workload's own study counts for more than what is so in general."""
    if rule is None:
        return RuleDecision(advice=AdviceReason.NO_RULE)
    values = rule.recipe.values(situation.scale)
    meant = situation.scale.batch_size * float(rule.terms.get(BATCH, 1))
    # A batch of one has no eighth: several processes would break the latency that a smaller batch keeps.
    is_cut_short = INSTANCES in values and float(values.get(BATCH, meant)) > MUCH_LONGER * meant
    if rule.recipe == Recipe() or values.get(INSTANCES) == 1 or is_cut_short:
        return RuleDecision(advice=AdviceReason.BY_RULE)
    own_study = counter_example(rule.evidence, situation)
    if own_study is not None and not is_gain(own_study.over_default):
        return RuleDecision(advice=AdviceReason.OWN_STUDY, own_study=own_study)
    stratum = rule.advice.row(SituationKind.of(situation))
    if stratum is None:
        return RuleDecision(advice=AdviceReason.NO_EVIDENCE)
    advice = AdviceReason.FOLLOW if stratum.is_advised else AdviceReason.NO_GAIN
    return RuleDecision(advice=advice, stratum=stratum)


def counter_example(evidence: Evidence, situation: Situation) -> CounterExample | None:
    """Return the worst study of this very workload, on such a machine and build, that speaks against a rule."""
    kind = SituationKind.of(situation)
    matching = [each for each in evidence.counter_examples if each.situation == kind]
    return min(matching, key=lambda each: each.over_default, default=None)
