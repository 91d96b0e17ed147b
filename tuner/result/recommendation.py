"""A recommendation from rules as it is published: what `tftune recommend` gives to programs, and its words."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from tuner.model.graph import Features
from tuner.quantity import percent, plural, ratio_text
from tuner.result.comparison import ComparisonResult
from tuner.result.study import Applied
from tuner.rules.gains import CounterExample, Evidence
from tuner.rules.recipe import FRAMEWORK
from tuner.rules.rule import AdviceCode, AdviceReason, RuleDecision
from tuner.rules.situation import FEATURE
from tuner.rules.strata import Count, Ratio, Stratum, StratumEvidence
from tuner.space.term import OPENMP
from tuner.stats.equivalence import MARGIN
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

    `prediction_interval` is where a new workload lies with 95 %; `kind` says which machines and builds it is from, and
    `call` how many times as long a call takes, null where that is not known.
    """

    ratio: float
    low: float | None
    high: float | None
    n_workloads: Count
    prediction_interval: tuple[float, float] | None
    kind: Stratum | None
    call: Ratio | None = None


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


class SeveralResult(Applied, frozen=True, kw_only=True):
    """What the rules on processes say beside those on one process; `expected` is null beyond their evidence."""

    outside: tuple[str, ...]
    advice: RuleAdvice
    followed: tuple[FollowedRule, ...]
    setting: Values
    expected: ExpectedSpeedup | None

    @property
    def is_followed(self) -> bool:
        """Return whether these rules set anything here."""
        return self.advice.code is AdviceCode.FOLLOW


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
    several: SeveralResult | None = None
    """Null where the rules do not speak of processes, where several cannot be, and where these were asked for alone."""
    same_latency: SeveralResult | None = None
    """The same of several with smaller batches, so that a call takes about as long as under the defaults."""
    verified: ComparisonResult | None = None


# ---- in words -------------------------------------------------------------------------------------------------------


def ratio_of(mean: Ratio | None) -> str:
    """Return a mean ratio with its interval."""
    return "—" if mean is None else ratio_text(mean.ratio, mean.low, mean.high)


def kind_text(kind: Stratum) -> str:
    """Return a kind of machine and build in words."""
    off = "" if kind.onednn else f" {FEATURE['onednn'].words[1]}"
    shape = kind.shape or f"any number of cores{', a quota' if kind.quota else ''}"
    return f"{shape} {FEATURE[OPENMP].words[kind.pool != OPENMP]}{off}"


def reason(decision: RuleDecision) -> str:
    """Return why a rule is not followed, with the figure."""
    if decision.own_study is not None:
        kind = kind_text(decision.own_study.situation)
        study = decision.own_study.study
        return f"its own study on such a machine ({kind}, {study}): {over_default(decision.own_study)}"
    if decision.stratum is None:
        return _NO_FIGURE[decision.advice]
    gained = decision.stratum.gained
    return (
        f"the rule shows no gain of more than {percent(MARGIN, 0)} ({kind_text(decision.stratum.kind)}): "
        f"{ratio_of(gained)} over the default, mean over "
        f"{plural(gained.n_workloads, 'held-out workload')}"
    )


_NO_FIGURE = {
    AdviceReason.NO_EVIDENCE: "no study covers this build, so the effect of the rule is unknown",
    AdviceReason.NO_RULE: "no rule applies",
    AdviceReason.BY_RULE: "the rule that applies keeps the default",
}


def over_default(against: CounterExample) -> str:
    """Return what a rule did in a study that speaks against it."""
    ratio = ratio_text(against.over_default, against.low, against.high)
    return f"{ratio} over {FRAMEWORK.catalogue.default}, {percent(against.of_best, 0)} of the best found"


def n_studies(n: int) -> str:
    """Return a number of studies."""
    return f"{n} stud{'y' if n == 1 else 'ies'}"


def sentence(condition: str | None, then: str, *, first: bool) -> str:
    """Return a rule as a sentence; `first` of its list or not. One without a condition holds everywhere."""
    if condition is not None:
        return f"If {condition}: {then}"
    return f"{'Everywhere' if first else 'Otherwise'}: {then}"
