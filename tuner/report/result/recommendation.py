"""A recommendation from rules as it is published: what `tftune recommend` gives to programs.

The evidence in it is what the rules' own file has (`tuner.rules.schema`).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from tuner.model.graph import Features
from tuner.report.result.comparison import ComparisonResult
from tuner.report.result.study import Applied
from tuner.rules.strata import AdviceCode, AdviceReason
from tuner.search.subject import Values

Evidence = dict[str, Any]
"""A part of the rules' file, see `tuner.rules.schema`."""


class RulesOrigin(Struct, frozen=True, kw_only=True):
    """The rules that were asked: their file, when they were made (ISO 8601), and from how many studies."""

    file: str
    created: str
    studies: int


class RuleAdvice(Struct, frozen=True, kw_only=True):
    """What is advised, why the default is kept where it is, and the row of the evidence that this rests on."""

    code: AdviceCode
    reason: AdviceReason | None
    evidence: Evidence | None


class FollowedRule(Struct, frozen=True, kw_only=True):
    """What is followed of a group of rules: its rule in words, null where none applies, and whether it is followed."""

    group: str
    if_: str | None = field(name="if")
    then: str
    advice: AdviceReason
    sentence: str


class RecommendationResult(Applied, frozen=True, kw_only=True):
    """A setting from rules, with its evidence; `expected` is its ratio to the default, null beyond the evidence."""

    schema: Literal[1] = 1
    workload: str
    mode: str
    shape: str
    pool: str
    onednn: bool
    quota: bool
    runtime: str
    features: Features
    machine_known: bool
    outside: tuple[str, ...]
    rules: RulesOrigin
    advice: RuleAdvice
    followed: tuple[FollowedRule, ...]
    setting: Values
    evidence: Evidence
    counter_example: Evidence | None
    expected: Evidence | None
    verified: ComparisonResult | None = None
