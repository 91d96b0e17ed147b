"""Whether to follow a rule in a situation, and the figures that this rests on.

Where the evidence shows no gain in such a stratum (`tuner.rules.strata`), or the very workload's own study speaks
against the rule, the advice is to keep the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tuner.rules.gains import CounterExample, Evidence
from tuner.rules.strata import SituationKind
from tuner.rules.recipe import Recipe
from tuner.rules.rule import Rule
from tuner.rules.situation import Situation
from tuner.rules.strata import StratumEvidence, is_gain


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
    """The rule that applies is to keep the default."""


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
    if rule is None or rule.recipe == Recipe():
        return RuleDecision(advice=AdviceReason.NO_RULE if rule is None else AdviceReason.BY_RULE)
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
