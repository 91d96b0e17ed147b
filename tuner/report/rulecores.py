"""What rules set by the number of cores, and how that is known: measured, predicted by the model, or not at all.

A cell speaks of the usual build without a CPU limit; of other builds and limits speak the situations of the rules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.quantity import plural, ratio_text
from tuner.rules.learn import LearnPlan
from tuner.rules.recipe import ONEDNN, Recipe
from tuner.rules.rule import KEEP, PredictedGain, Rule, RuleList, RuleSet
from tuner.rules.strata import Ratio, Stratum, StratumEvidence
from tuner.space.groups import INSTANCES
from tuner.space.term import EIGEN, OPENMP

BUILDS = {EIGEN: "stock", OPENMP: "OpenMP"}
CLASSES = {"1–2": 2, "4–8": 8, "16": 31, "32+": math.inf}
"""Machines by their usable cores: what a class is called, and the most that it has."""
_FEW = LearnPlan().min_workloads
_USUAL = Stratum(shape=None, pool=EIGEN, onednn=True, quota=False)
IN_COLUMNS = frozenset({OPENMP, ONEDNN, "cores"})
"""Features that the columns of tables show already."""


class Known(StrEnum):
    """How a cell is known."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What to set on machines of so many `cores`, what it gains there, and what a call costs.

    `models` names the models that it is for, empty for all. `advised` is empty if the defaults are kept, as they are by
    a predicted figure. `tried` is what a rule would set, empty if there is no rule. `basis` are the models behind a
    measured figure. Of a predicted one it is what was profiled, and of nothing it is why.
    """

    known: Known
    cores: str = ""
    models: str = ""
    advised: str = ""
    tried: str = ""
    gain: Ratio | None = None
    call: Ratio | None = None
    basis: str = ""

    def __str__(self) -> str:
        if self.known is Known.UNKNOWN:
            return f"{self.known}{f' ({self.cores}: {self.basis})' if self.basis else ''}"
        figure = "" if self.gain is None else ratio_text(self.gain.ratio, self.gain.low, self.gain.high, "×")
        price = "" if self.call is None else f", a call takes {ratio_text(self.call.ratio, None, None, '×')}"
        if self.known is Known.PREDICTED:
            return f"{self.known}, no advice: {self.tried or 'the default'}: {figure}{price} ({self.cores})"
        why = f"{self.tried} gives {figure}" if self.tried else "nothing else is clearly better for all models"
        what = f"{self.advised}: {figure}{price}" if self.advised else f"keep the default: {why}"
        return f"{self.models}{what} ({self.cores}: {self.known}, {self.basis})"


def title_by_cores(rules: RuleSet) -> str:
    """Return what the table is of."""
    build = _usual(rules)
    what = f"{BUILDS[build.pool]}{f', {build.gpu}' if build.gpu else ''}, oneDNN {'on' if build.onednn else 'off'}"
    return f"what to set by usable physical cores ({what}, no CPU limit)"


def by_cores(rules: RuleSet) -> Iterator[tuple[str, dict[str, Sequence[Cell]]]]:
    """Yield each class of machines with the cells of each group of rules; one that is unknown has one cell."""
    build, low = _usual(rules), 0.0
    for title, high in CLASSES.items():
        cells = {name: [each for n, each in _cells(rules, name, build) if low < n <= high] for name in KEEP}
        yield title, {name: _best_known(each) for name, each in cells.items()}
        low = high


def _best_known(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Return what was measured, else what is predicted, else that nothing is known."""
    by_how = {known: [each for each in cells if each.known is known] for known in Known}
    return next((each for each in by_how.values() if each), [Cell(known=Known.UNKNOWN)])


def _usual(rules: RuleSet) -> Stratum:
    """Return the build that most users have, if studies or predictions are of it; else that which most are of."""
    kinds = [kind for group in rules.groups.values() for kind in _measured_kinds(group) if not kind.quota]
    if not kinds or any(_USUAL.covers(kind) for kind in kinds):
        return _USUAL
    (pool, onednn, quota, gpu), _ = Counter(kind.build for kind in kinds).most_common(1)[0]
    return Stratum(shape=None, pool=pool, onednn=onednn, quota=quota, gpu=gpu)


def _kinds(rules: RuleSet, name: str) -> Iterator[Stratum]:
    """Yield the kinds of machines and builds that a group tells of."""
    if name in rules.groups:
        yield from _measured_kinds(rules.groups[name])
    yield from (each.kind for each in rules.predicted.get(name, ()))


def _measured_kinds(group: RuleList) -> Iterator[Stratum]:
    tested = group.proof.by_workload
    yield from (each.situation for each in (() if tested is None else tested.studies))
    yield from (row.kind for rule in group.rules for row in rule.advice.strata)


def _cells(rules: RuleSet, name: str, build: Stratum) -> Iterator[tuple[int, Cell]]:
    """Yield the cells of a group, each with its number of cores, the fewest cores first."""
    group, predicted = rules.groups.get(name), rules.predicted.get(name, ())
    kinds = {each.shape: each for each in _kinds(rules, name) if build.covers(each) and each.shape is not None}
    for kind in sorted(kinds.values(), key=_n_cores):
        cells = [] if group is None else list(_measured(group, kind))
        yield from ((_n_cores(kind), each) for each in (*cells, *_predicted(predicted, kind)))


def _measured(group: RuleList, kind: Stratum) -> Iterator[Cell]:
    """Yield what was measured on machines and builds of a kind, rule by rule.

    If no rule holds there, that is a result of enough workloads. Of fewer there is never a rule.
    """
    rows = [(rule, row) for rule in group.rules if rule.terms for row in rule.advice.strata if row.kind.covers(kind)]
    yield from (_of_rule(rule, row, group) for rule, row in rows)
    tested = group.proof.by_workload
    studies = [] if tested is None else [each for each in tested.studies if _same(each.situation, kind)]
    n_workloads = len({each.situation.workload for each in studies})
    if not rows and n_workloads >= _FEW:
        yield Cell(known=Known.MEASURED, cores=_cores(kind), basis=plural(n_workloads, "model"))
    elif not rows and n_workloads:
        yield Cell(known=Known.UNKNOWN, cores=_cores(kind), basis=f"only {plural(n_workloads, 'model')}")


def _of_rule(rule: Rule, row: StratumEvidence, group: RuleList) -> Cell:
    """Return what a rule comes to in a stratum."""
    models = " and ".join(str(each) for each in rule.literals if each.feature not in IN_COLUMNS)
    models = f"if {models}, " if models else "" if rule is group.rules[0] else "else "
    gain = row.gained if row.expected is None else row.expected.over_default
    # A guide on threads is a name for several variables; how many processes there are is said in fewer words.
    guides = () if INSTANCES in rule.terms else (each for each in rule.evidence.equivalents if each.startswith("what "))
    words = next(iter(guides), _words(rule.recipe, row.kind.pool))
    is_few = gain.n_workloads < _FEW and row.is_advised
    return Cell(
        known=Known.MEASURED,
        cores=_cores(row.kind),
        models=models,
        advised=words if row.is_advised else "",
        tried=words,
        gain=gain,
        call=row.call if row.is_advised else None,
        basis=plural(gain.n_workloads, "model") + (", advised because of other cores" if is_few else ""),
    )


def _predicted(predicted: Sequence[PredictedGain], kind: Stratum) -> Iterator[Cell]:
    """Yield what a model of the machine expects on machines and builds of a kind."""
    for each in predicted:
        if _same(each.kind, kind):
            words = _words(each.recipe, kind.pool) if each.recipe != Recipe() else ""
            yield Cell(
                known=Known.PREDICTED,
                cores=_cores(kind),
                tried=words,
                gain=each.gain,
                call=each.call,
                basis=each.basis,
            )


def _words(recipe: Recipe, pool: str) -> str:
    """Return what a recipe sets; the row says already what it is of."""
    words = recipe.words(pool).removeprefix("processes ")
    return (
        words.replace("batch_size ", "batch ")
        .replace(" times the workload's own", "×")
        .replace(" of the workload's own", "")
    )


def _same(a: Stratum, b: Stratum) -> bool:
    return (a.shape, a.build) == (b.shape, b.build)


def _n_cores(kind: Stratum) -> int:
    return int(kind.cores or 0)


def _cores(kind: Stratum) -> str:
    return plural(_n_cores(kind), "core")
