"""Could rules have known better where they do worst? Of each workload that was left out, what the others say.

    python -m tests.benchmarks.worst [DATABASE]

Where the rules of the other workloads stay below 0.90 of the best found, they could have done well if some setting that
reaches 0.90 there were better, by what a rule has to gain, in several of the others on such a machine and build. Where
it is so in one of them at most, every rule that says so is a rule from one workload alone.
"""

from __future__ import annotations

import lzma
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tuner.result.recommendation import kind_text
from tuner.rules.evidence import StudyEvidence, read
from tuner.rules.learn import LearnPlan
from tuner.rules.table import TrainingTable, follow, thread_table
from tuner.study.storage import open_storage, records

PACKED = Path(__file__).parents[2] / "results/reference.db.xz"
AIM = math.log(0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedStudy:
    """A study in which rules that have not seen the workload miss the aim, and who could have told them."""

    study: StudyEvidence
    reached: float
    """Of the best found."""
    others: list[str]
    """The workloads that speak most for one of the settings that reach the aim."""


def missed(table: TrainingTable, plan: LearnPlan) -> Iterator[MissedStudy]:
    """Yield the studies of a table in which the rules of the other workloads miss the aim."""
    u = table.problem.u
    for workload in dict.fromkeys(study.workload for study in table.studies):
        rules = table.learn(plan, [study.workload != workload for study in table.studies])
        recipe_indices = [table.recipes.index(follow(rules, study)) for study in table.studies]
        for i, study in enumerate(table.studies):
            if study.workload != workload:
                continue
            best = study.surface.log_ratio(study.default, study.best_found(batch=False))[0]
            reached = u[i, recipe_indices[i]] - best
            if reached < AIM:
                able = [r for r in range(len(table.recipes)) if u[i, r] - best >= AIM]
                speaking = (_speaking(table, i, r, recipe_indices, plan) for r in able)
                yield MissedStudy(study=study, reached=math.exp(reached), others=max(speaking, key=len, default=[]))


def _speaking(table: TrainingTable, i: int, recipe: int, recipe_indices: list[int], plan: LearnPlan) -> list[str]:
    """Return the other workloads which gain from a recipe over the rules', on machines and builds as study i's."""
    gains = defaultdict(list)
    of = table.studies[i]
    for n, study in enumerate(table.studies):
        if study.workload != of.workload and study.kind.covers(of.kind):
            gains[study.workload].append(table.problem.u[n, recipe] - table.problem.u[n, recipe_indices[n]])
    return sorted(workload for workload, each in gains.items() if mean(each) >= plan.min_gain)


def table_of(database: Path) -> TrainingTable:
    """Return the table of a database's studies."""
    storage = open_storage(f"sqlite:///{database}", create=False)
    assert storage is not None
    studies, _ = read(records(storage)[0])
    return thread_table(studies)


def main() -> None:
    """Print the studies, the worst first."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "reference.db"
        if len(sys.argv) > 1:
            database = Path(sys.argv[1])
        else:
            database.write_bytes(lzma.decompress(PACKED.read_bytes()))
        missed_studies = sorted(missed(table_of(database), LearnPlan()), key=lambda told: told.reached)
    print("| study | of the best found | other workloads that speak for what reaches 0.90 |\n| --- | ---: | --- |")
    for missed_study in missed_studies:
        words = f"{missed_study.study.workload}, {kind_text(missed_study.study.kind)}"
        print(
            f"| {words} | {missed_study.reached:.2f} | {len(missed_study.others)}: {', '.join(missed_study.others)} |"
        )


if __name__ == "__main__":
    main()
