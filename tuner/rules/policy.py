"""A policy: rules that are applied only where they are shown to help; elsewhere the default is kept.

The step has to be learned as the rules are, and from the same studies: a table of what a policy gains in studies that
were left out is honest only if their evidence had no part in the decision to follow or to keep. So inside what is left,
workloads are left out once more, to learn where the rules help that were not chosen by them (nested cross-validation:
Varma & Simon (2006), Bias in error estimation when using cross-validation for model selection, BMC Bioinformatics 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.rules.evidence import StudyEvidence
from tuner.rules.recipe import Recipe
from tuner.rules.strata import AdviceByStratum, Gain, advice_by_stratum
from tuner.rules.table import Rules, TrainingTable, first_rule, follow

StudyMask = tuple[bool, ...]
"""Which studies of a table are learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules, the first of which that holds counts; and of each, in which strata it is advised."""

    rules: Rules
    advice: Sequence[AdviceByStratum]
    """Of each rule."""

    def recipe(self, study: StudyEvidence) -> Recipe:
        """Return what is followed in a study; to keep what is there where no gain is shown."""
        i = first_rule(self.rules, study)
        if i == len(self.rules):
            return Recipe()
        row = self.advice[i].row(study.kind)
        return self.rules[i][1] if row is not None and row.is_advised else Recipe()


def do_no_harm_policy(
    table: TrainingTable,
    rules: Rules,
    study_mask: StudyMask,
    *,
    learned: Callable[[StudyMask], Rules],
    fold: Mapping[str, int],
) -> Policy:
    """Return the policy that rules give which were learned from the studies in `study_mask`, and from these alone.

    `learned` gives the rules of some studies; `fold` says which workloads are left out together.
    """
    gains: list[list[Gain]] = [[] for _ in rules]
    for left_out in sorted(set(fold.values())):
        met = [n for n, study in enumerate(table.studies) if study_mask[n] and fold[study.workload] == left_out]
        if not met:
            continue
        of_others = learned(
            tuple(
                is_kept and fold[study.workload] != left_out
                for is_kept, study in zip(study_mask, table.studies, strict=True)
            )
        )
        for n in met:
            study = table.studies[n]
            i = first_rule(rules, study)
            if i < len(rules):
                gained = table.problem.u[n, table.recipes.index(follow(of_others, study))]
                gains[i].append(Gain(situation=study.kind, log_ratio=float(gained)))
    return Policy(rules=rules, advice=[advice_by_stratum(each) for each in gains])
