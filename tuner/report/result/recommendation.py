"""A recommendation from rules as it is published: what `tftune recommend` gives to programs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from tuner.model.graph import Features
from tuner.report.result.comparison import ComparisonResult
from tuner.report.result.study import Applied
from tuner.rules.advice import AdviceCode, AdviceReason
from tuner.rules.average import Count
from tuner.rules.gains import CounterExample, Evidence
from tuner.rules.kind import Kind
from tuner.rules.strata import StratumEvidence
from tuner.study.subject import Values
from tuner.workload.feed import InputFacts


class RulesOrigin(Struct, frozen=True, kw_only=True):
    """The rules that were asked: their file, when they were made (ISO 8601), and from how many studies."""

    file: str
    created: str
    studies: int


class RuleAdvice(Struct, frozen=True, kw_only=True):
    """What is advised, and why the default is kept where it is.

    It rests on the evidence of a stratum, or on a study of this very workload; on neither where no rule applies.
    """

    code: AdviceCode
    reason: AdviceReason | None
    stratum: StratumEvidence | None
    own_study: CounterExample | None


class ExpectedSpeedup(Struct, frozen=True, kw_only=True):
    """The expected ratio to the default: a mean over held-out workloads with its 95 % interval, or 1 for the default.

    `prediction_interval` is where a new workload lies with 95 %; `kind` says which machines and builds it is from.
    """

    ratio: float
    low: float | None
    high: float | None
    n_workloads: Count
    prediction_interval: tuple[float, float] | None
    kind: Kind | None


class FollowedRule(Struct, frozen=True, kw_only=True):
    """What is followed of a group of rules: its rule in words, null where none applies, and whether it is followed.

    `recipe` is what the rule sets by knob, in the terms of rules; empty where nothing is followed.
    """

    group: str
    if_: str | None = field(name="if")
    then: str
    advice: AdviceReason
    sentence: str
    recipe: dict[str, str] = {}


class RecommendationResult(Applied, frozen=True, kw_only=True):
    """A setting from rules, with its evidence; `expected` is null beyond what the evidence reaches."""

    schema: Literal[1] = 1
    workload: str
    mode: str
    shape: str
    pool: str
    onednn: bool
    quota: bool
    runtime: str
    features: Features
    inputs: tuple[InputFacts, ...] = ()
    """What tftune would feed to the model, and what its features are of; empty if the model makes its own inputs."""
    machine_known: bool
    outside: tuple[str, ...]
    rules: RulesOrigin
    advice: RuleAdvice
    followed: tuple[FollowedRule, ...]
    setting: Values
    evidence: Evidence | None
    counter_example: CounterExample | None
    expected: ExpectedSpeedup | None
    verified: ComparisonResult | None = None
