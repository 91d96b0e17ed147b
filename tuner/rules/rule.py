"""Rules, and the set of them that was distilled: what is kept in a file, and applied to the next workload."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.baselines import WANG, WANG_SOURCE
from tuner.rules.condition import Condition
from tuner.rules.recipe import BATCH, TERMS, Recipe
from tuner.rules.schema import GROUPS, SCHEMA, THREADS, schema_error
from tuner.rules.situation import FEATURE, FEATURES, Situation
from tuner.space.term import OPENMP

KEEP = {THREADS: "keep TensorFlow's defaults", BATCH: "keep the workload's own batch size"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Under a condition, a recipe; with its evidence (see `tuner.rules.gains`). `group` is one of `GROUPS`."""

    group: str
    condition: Condition
    recipe: Recipe
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, group: str, data: Mapping[str, Any]) -> Rule:
        """Return a stored rule; raises KeyError, TypeError or ValueError for what is none."""
        recipe = Recipe.of(data["recipe"])
        if len(recipe.items) != len(data["recipe"]) or not all(_is_known(knob, name) for knob, name in recipe.items):
            raise ValueError(data["recipe"])
        condition = Condition.from_list(data["condition"])
        if any(literal.feature not in FEATURE for literal in condition.literals):
            raise ValueError(data["condition"])
        return cls(group=group, condition=condition, recipe=recipe, evidence=data["evidence"])

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        return {
            "if": str(self.condition),
            "then": self.words(_pool(self.condition)),
            "condition": self.condition.to_list(),
            "recipe": self.recipe.to_dict(),
            "evidence": dict(self.evidence),
        }

    def words(self, pool: str | None) -> str:
        """Return what it sets, as a person would say it; of a build with that pool, if it is said."""
        if self.recipe == Recipe():
            return KEEP[self.group]
        return self.recipe.words(pool)


def _is_known(knob: str, name: str) -> bool:
    return 0 < float(name) < math.inf if knob == BATCH else name in TERMS[knob]


def _pool(condition: Condition) -> str | None:
    """Return the pool that a condition asks for, None if it asks for none."""
    for literal in condition.literals:
        if literal.feature == OPENMP:
            return "eigen" if literal.below else OPENMP
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the evidence is from: hosts, their shapes, the range of each feature, workloads, builds."""

    n_studies: int
    hosts: list[str]
    """The machines; each may be there in several shapes."""
    ranges: Mapping[str, tuple[float, float]]
    shapes: Mapping[str, Mapping[str, Any]]
    workloads: Mapping[str, list[str]]
    runtimes: Mapping[str, int]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Coverage:
        """Return a stored coverage."""
        ranges = {name: (low, high) for name, (low, high) in data["ranges"].items()}
        return cls(**{**data, "ranges": ranges})

    def to_dict(self) -> dict[str, Any]:
        """Return the coverage as plain data."""
        return {
            "n_studies": self.n_studies,
            "hosts": list(self.hosts),
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "shapes": dict(self.shapes),
            "workloads": dict(self.workloads),
            "runtimes": dict(self.runtimes),
        }

    def outside(self, situation: Situation) -> list[str]:
        """Return in which respects a situation lies outside of the evidence, as sentences' parts."""
        reasons = [] if self.n_studies else ["there are no studies"]
        values = situation.values()
        for feature in FEATURES:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleList:
    """The rules of one group, the first of which that holds is followed; what they are from, and their proof."""

    rules: list[Rule]
    default_evidence: Mapping[str, Any]
    """The evidence of keeping what is there, where no rule holds."""
    coverage: Coverage
    headline: Sequence[Mapping[str, Any]] = ()
    """What is expected by class of strata, and in how many studies a rule is advised."""
    proof: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, group: str, data: Mapping[str, Any]) -> RuleList:
        """Return stored rules of a group; raises KeyError, TypeError or ValueError for what are none."""
        return cls(
            rules=[Rule.from_dict(group, each) for each in data["rules"]],
            default_evidence=data["otherwise"],
            coverage=Coverage.from_dict(data["coverage"]),
            headline=list(data["headline"]),
            proof=dict(data["proof"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as plain data."""
        return {
            "headline": [dict(each) for each in self.headline],
            "rules": [rule.to_dict() for rule in self.rules],
            "otherwise": dict(self.default_evidence),
            "proof": dict(self.proof),
            "coverage": self.coverage.to_dict(),
        }

    def rule(self, situation: Situation) -> Rule | None:
        """Return the rule to follow; None for keeping what is there."""
        values = situation.values()
        return next((rule for rule in self.rules if rule.condition.holds(values)), None)

    def outside(self, situation: Situation) -> list[str]:
        """Return why nothing can be promised in a situation: what was not seen, or is not known of it."""
        values = situation.values()
        used_features = dict.fromkeys(literal.feature for rule in self.rules for literal in rule.condition.literals)
        unknown = [f"{FEATURE[name].words[0]} is not known" for name in used_features if math.isnan(values[name])]
        return unknown + self.coverage.outside(situation)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """Everything that was distilled: the rules on threads, on the batch size, or on both, and how they were made."""

    lists: Mapping[str, RuleList]
    """By group; what no study tells of is not there."""
    provenance: Mapping[str, Any]
    """When, by which version, and from what; which studies were left out."""

    @classmethod
    def from_dict(cls, data: Any) -> RuleSet:
        """Return stored rules; raises BadInputError for what are none, or of another format."""
        hint = "create them again: tftune rules --keep, or tftune rules --format json --out FILE"
        if not isinstance(data, dict) or "groups" not in data or "made" not in data:
            raise BadInputError("it is not a rules file", hint)
        if data.get("schema") != SCHEMA:
            raise BadInputError(
                f"rules have format {data.get('schema')}, this version of tftune reads format {SCHEMA}",
                hint,
            )
        wrong = schema_error(data)
        if wrong is not None:
            raise BadInputError(f"the rules are invalid ({wrong})", hint)
        try:
            groups = {group: data["groups"][group] for group in GROUPS if group in data["groups"]}
            lists = {group: RuleList.from_dict(group, each) for group, each in groups.items()}
            return cls(lists=lists, provenance=data["made"])
        except (KeyError, ValueError) as error:  # a feature or a term that is not known
            raise BadInputError(f"the rules are invalid ({error})", hint) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as plain data: the contract of `tftune rules --json`."""
        return {
            "schema": SCHEMA,
            "made": dict(self.provenance),
            "sources": {WANG: WANG_SOURCE},
            "groups": {group: each.to_dict() for group, each in self.lists.items()},
        }
