"""Rules, and the set of them that was distilled: what is kept in a file, and applied to the next workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import BadInputError
from tuner.rules.condition import Condition
from tuner.rules.recipe import BATCH, TERMS, Recipe
from tuner.rules.situation import FEATURE, FEATURES, OPENMP, Situation

SCHEMA = 1
THREADS = "threads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Under a condition, a recipe; with its evidence (see `tuner.rules.account`)."""

    group: str
    """`threads` or `batch_size`: rules of one group exclude each other, those of both are applied together."""
    condition: Condition
    recipe: Recipe
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """Return a stored rule; raises KeyError or ValueError for what is none."""
        recipe = Recipe.of(data["recipe"])
        if len(recipe.items) != len(data["recipe"]) or not all(_is_known(knob, name) for knob, name in recipe.items):
            raise ValueError(data["recipe"])
        condition = Condition.from_list(data["condition"])
        if any(literal.feature not in FEATURE for literal in condition.literals):
            raise ValueError(data["condition"])
        return cls(group=data["group"], condition=condition, recipe=recipe, evidence=data["evidence"])

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        return {
            "group": self.group,
            "if": str(self.condition),
            "then": self.words,
            "condition": self.condition.to_list(),
            "recipe": self.recipe.to_dict(),
            "evidence": dict(self.evidence),
        }

    @property
    def words(self) -> str:
        """Return what it sets, as a person would say it."""
        return self.recipe.words(_pool(self.condition))


def _is_known(knob: str, name: str) -> bool:
    return float(name) > 0 if knob == BATCH else name in TERMS[knob]


def _pool(condition: Condition) -> str | None:
    """Return the pool that a condition asks for, None if it asks for none."""
    for literal in condition.literals:
        if literal.feature == OPENMP:
            return "eigen" if literal.below else OPENMP
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the evidence is from: hosts, their shapes (`machines`), the range of each feature, workloads, builds."""

    n_studies: int
    hosts: list[str]
    """The machines; each may be there in several shapes."""
    ranges: Mapping[str, tuple[float, float]]
    machines: Mapping[str, Mapping[str, Any]]
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
            "machines": dict(self.machines),
            "workloads": dict(self.workloads),
            "runtimes": dict(self.runtimes),
        }

    def outside(self, situation: Situation) -> list[str]:
        """Return in which respects a situation lies outside of the evidence, as sentences' parts."""
        found = []
        values = situation.values()
        for feature in FEATURES:
            value, ends = values[feature.name], self.ranges.get(feature.name)
            if math.isnan(value) or ends is None or ends[0] <= value <= ends[1]:
                continue
            unit = f" {feature.unit}" if feature.unit else ""
            if feature.word:
                found.append(f"{feature.words[0 if value else 1]} was never seen")
            else:
                span = f"{ends[0]:.3g}" if ends[0] == ends[1] else f"{ends[0]:.3g} to {ends[1]:.3g}"
                found.append(f"{feature.words[0]} is {value:.3g}{unit}, the evidence has {span}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """The rules that were distilled: of each group the first whose condition holds is followed."""

    rules: list[Rule]
    otherwise: Mapping[str, Any]
    """The evidence of keeping the defaults, where no rule on threads holds."""
    coverage: Coverage
    made: Mapping[str, Any]
    """When, by which version, from what, and what was left out."""
    proof: Mapping[str, Any] = field(default_factory=dict)

    def rule(self, situation: Situation, group: str = THREADS) -> Rule | None:
        """Return the rule of a group to follow; None for keeping what is there."""
        values = situation.values()
        return next((r for r in self.rules if r.group == group and r.condition.holds(values)), None)

    @classmethod
    def from_dict(cls, data: Any) -> RuleSet:
        """Return stored rules; raises BadInputError for what are none, or of another format."""
        hint = "make them again: tftune rules --format json --out FILE"
        if not isinstance(data, dict) or "rules" not in data or "coverage" not in data:
            raise BadInputError("the file holds no rules", hint)
        if data.get("schema") != SCHEMA:
            raise BadInputError(f"rules of format {data.get('schema')}, this tftune reads {SCHEMA}", hint)
        try:
            for key in ("created", "simulated", "tftune", "excluded"):
                data["made"][key]
            return cls(
                rules=[Rule.from_dict(each) for each in data["rules"]],
                otherwise=data["otherwise"],
                coverage=Coverage.from_dict(data["coverage"]),
                made=data["made"],
                proof=data["proof"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInputError(f"rules that cannot be understood ({error!r})", hint) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as plain data: the contract of `tftune rules --json`."""
        return {
            "schema": SCHEMA,
            "made": dict(self.made),
            "rules": [rule.to_dict() for rule in self.rules],
            "otherwise": dict(self.otherwise),
            "proof": dict(self.proof),
            "coverage": self.coverage.to_dict(),
        }
