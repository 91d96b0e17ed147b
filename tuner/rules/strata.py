"""Strata: kinds of machines and builds, each of which has its own evidence on whether a rule helps there.

A stratum is a shape of a machine (cores, quota), the build's pool, and whether oneDNN is on by itself: these decide
what a setting does. Of rules that gain 1.4 in one stratum and nothing in another, one average speaks for neither.

Notation
    g_s     what rules that have not seen the workload of study s gain there over what is kept without them (log-ratio)
    ĝ       the mean of g_s in a stratum: of each workload first, then of these; [l, h] its 95 % interval over workloads
    m       the margin: gains up to it are treated as none

Do no harm. A rule is advised in a stratum where ĝ > log(1 + m) and l > 0: the gain is large enough to matter, and there
is one, with an error of 2.5 %. Everywhere else the default is kept: it is the change that has to be shown to be good.
Neither condition would do alone: a ratio of 1.05 [0.90, 1.20] may be a loss, and one of 1.012 [1.003, 1.020] is there
but is not worth a change.

A stratum of fewer than three workloads has no interval to speak of: there the build decides (the same pool, oneDNN and
quota or none, with any number of cores), and its own mean has to be above the margin as well. So does the build for a
number of cores that was never seen. Where no study is of such a build, the default is kept: which knobs act at all is a
matter of the build, so that what was seen on others says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from tuner.rules.average import over_workloads, ratio_document
from tuner.stats.equivalence import MARGIN

Kind = Mapping[str, Any]
"""A kind of machine and build: its shape, pool, onednn and quota (`tuner.rules.gains.kind`)."""
Row = Mapping[str, Any]
T = TypeVar("T")
_STRATUM = ("shape", "pool", "onednn", "quota")
_BUILD = ("pool", "onednn", "quota")
_MIN_WORKLOADS = 3  # of an interval that says something

ONEDNN_OFF, QUOTA, REST = "onednn-off", "quota", "rest"
CLASSES = (ONEDNN_OFF, QUOTA, REST)
"""The classes of strata that headlines are given by: where oneDNN is off, else where there is a quota, and the rest."""


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
class Gain:
    """What rules that have not seen the workload gain in a study over what is kept without them (log-ratio)."""

    kind: Kind
    workload: str
    log_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDecision:
    """An advice, and the row of the evidence that it rests on, if there is one."""

    advice: AdviceReason
    row: Row | None = None


def class_of(kind: Kind) -> str:
    """Return the class of a stratum."""
    if not kind["onednn"]:
        return ONEDNN_OFF
    return QUOTA if kind["quota"] else REST


def is_gain(ratio: float) -> bool:
    """Return whether a ratio to the default is above it by more than the margin."""
    return ratio > 1 + MARGIN


def is_shown(gain: Row) -> bool:
    """Return whether a ratio is above the margin, and its interval above 1; not where it has no interval."""
    return is_gain(gain["ratio"]) and gain["low"] is not None and gain["low"] > 1


def advice_by_stratum(gains: Sequence[Gain]) -> dict[str, list[dict[str, Any]]]:
    """Return what is advised in each stratum (`strata`), and in each build with any number of cores (`builds`).

    `gained` is what the advice rests on: the rate under the rules over what is kept without them.
    """
    builds = [
        row
        | {"advice": str(AdviceReason.FOLLOW if _is_enough(row) and is_shown(row["gained"]) else AdviceReason.NO_GAIN)}
        for row in _rows(gains, _BUILD)
    ]
    strata = []
    for row in _rows(gains, _STRATUM):
        deciding = row if _is_enough(row) else next(each for each in builds if _agree(each, row, _BUILD))
        is_advised = is_gain(row["gained"]["ratio"]) and _is_enough(deciding) and is_shown(deciding["gained"])
        strata.append(row | {"advice": str(AdviceReason.FOLLOW if is_advised else AdviceReason.NO_GAIN)})
    return {"strata": strata, "builds": builds}


def decide(evidence: Mapping[str, Sequence[Row]], kind: Kind) -> RuleDecision:
    """Return what a rule's evidence advises on such a machine and build."""
    for rows, names in ((evidence["strata"], _STRATUM), (evidence["builds"], _BUILD)):
        for row in rows:
            if _agree(row, kind, names):
                return RuleDecision(advice=AdviceReason(row["advice"]), row=row)
    return RuleDecision(advice=AdviceReason.NO_EVIDENCE)


def grouped(each: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return things by a key, in the key's order."""
    groups: dict[Any, list[T]] = defaultdict(list)
    for one in each:
        groups[key(one)].append(one)
    return dict(sorted(groups.items()))


def _rows(gains: Sequence[Gain], names: Sequence[str]) -> list[dict[str, Any]]:
    groups = grouped(gains, lambda gain: tuple(gain.kind[name] for name in names))
    return [
        {
            **dict(zip(names, key, strict=True)),
            "studies": len(members),
            "gained": ratio_document(over_workloads((gain.workload, gain.log_ratio) for gain in members)),
        }
        for key, members in groups.items()
    ]


def _is_enough(row: Row) -> bool:
    return bool(row["gained"]["workloads"] >= _MIN_WORKLOADS)


def _agree(a: Kind, b: Kind, names: Sequence[str]) -> bool:
    return all(a[name] == b[name] for name in names)
