"""Verdicts: what the finals allow to be said about the incumbent against each baseline, and what to recommend."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.measure.finals import SAME_BATCH, Contender
from tuner.measure.statistics import Array, Estimate, contrast
from tuner.space.baseline import DEFAULT
from tuner.space.setting import Setting

INCUMBENT = "incumbent"
SIMPLER = "simpler"
"""The simplest of the settings that the search could not tell apart from the incumbent."""
_HOPELESSLY_WIDE = math.log(1.5)


class Word(StrEnum):
    """What is said of a speed-up."""

    BETTER = "better"
    NO_DIFFERENCE = "no difference"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The speed-up of the incumbent over a baseline with its interval; None where nothing can be said."""

    speedup: float | None
    low: float | None
    high: float | None
    word: Word

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as plain data."""
        return {"speedup": self.speedup, "low": self.low, "high": self.high, "verdict": self.word.value}


SAME = Verdict(speedup=1.0, low=1.0, high=1.0, word=Word.NO_DIFFERENCE)
"""The incumbent against its own setting under another name."""
UNMEASURED = Verdict(speedup=None, low=None, high=None, word=Word.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """What is asked of a claim.

    `threshold` is the practical one (0.02 for 2 %); `level` that of the intervals at this look, and `comparisons` how
    many of them are to hold together.
    """

    threshold: float
    level: float = 0.95
    comparisons: int = 1


def judge(estimate: Estimate, standard: Standard) -> Verdict:
    """Return the verdict on a log-ratio.

    better or worse: the interval excludes 1, and the estimate is beyond the threshold. no difference: the whole
    interval lies inside the threshold. Anything else is undecided: no evidence, no claim; and no number at all where
    the interval reaches more than half as much again up and down.
    """
    low, high = estimate.interval(standard.level, m=standard.comparisons)
    if estimate.df <= 0 or math.log(max(high, 1e-300)) - estimate.mean > _HOPELESSLY_WIDE:
        return UNMEASURED
    speedup, most = estimate.ratio, 1 + standard.threshold
    if low > 1 and speedup > most:
        word = Word.BETTER
    elif high < 1 and speedup < 1 / most:
        word = Word.WORSE
    elif low >= 1 / most and high <= most:
        word = Word.NO_DIFFERENCE
    else:
        word = Word.UNDECIDED
    return Verdict(speedup=speedup, low=low, high=high, word=word)


def judge_all(
    names: Sequence[str], y: Array, contenders: Sequence[Contender], standard: Standard
) -> dict[str, Verdict]:
    """Return the verdict on the incumbent against every other name of every contender.

    `names` are the columns of `y` (see `tuner.measure.finals.table`).
    """
    column = {name: j for j, name in enumerate(names)}
    winner = next(contender for contender in contenders if INCUMBENT in contender.names)
    verdicts: dict[str, Verdict] = {}
    for contender in contenders:
        if contender is winner:
            verdict = SAME
        elif len(y) and contender.names[0] in column and winner.names[0] in column:
            verdict = judge(contrast(y, column[contender.names[0]], column[winner.names[0]]), standard)
        else:
            verdict = UNMEASURED
        verdicts |= {name: verdict for name in contender.names if name != INCUMBENT}
    return verdicts


def decided(verdicts: Mapping[str, Verdict]) -> bool:
    """Return whether no further round could change anything that is open."""
    return all(verdict.word is not Word.UNDECIDED for verdict in verdicts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to use: the contender's name; and those that cannot be told apart from the fastest, it among them.

    `gain` is the verdict on it against TensorFlow's default; None for that default itself.
    """

    source: str
    alike: tuple[str, ...]
    gain: Verdict | None = None


def recommend(
    names: Sequence[str],
    y: Array,
    contenders: Sequence[Contender],
    standard: Standard,
    *,
    broken: Collection[str] = (),
) -> Advice:
    """Return what to use: TensorFlow's default unless something is better than it, and then the simplest that is.

    `broken` names the contenders that break a limit. Alike are those whose interval to the fastest of the others
    includes 1; among these the simplest that is better than the default, or, where none is shown to be, the
    default. Where the default itself breaks a limit, the simplest that is alike.
    """
    column = {c.names[0]: names.index(c.names[0]) for c in contenders if c.names[0] in names and len(y)}
    by_name = {c.names[0]: c for c in contenders}
    default = next((c.names[0] for c in contenders if DEFAULT in c.names), None)
    allowed = [name for name in column if by_name[name].eligible and name not in broken]
    if default not in column or not allowed:
        return Advice(source=DEFAULT, alike=())
    reference = by_name[default].setting
    fastest = max(allowed, key=lambda name: float(y[:, column[name]].mean()))

    def against(name: str, other: str) -> Verdict:
        return judge(contrast(y, column[other], column[name]), standard)

    def apart(name: str) -> bool:
        found = against(fastest, name)
        return found.low is not None and found.low > 1

    alike = [name for name in allowed if name == fastest or not apart(name)]
    good = [name for name in alike if default in broken or against(name, default).word is Word.BETTER]
    # What is fast may be shown to be better where a simpler one is not.
    chosen = min(good, key=lambda name: simplicity(by_name[name].setting, reference), default=default)
    return Advice(
        source=_name(by_name[chosen]),
        alike=tuple(_name(by_name[name]) for name in alike),
        gain=None if chosen == default else against(chosen, default),
    )


def _name(contender: Contender) -> str:
    """Return the name that a contender is spoken of by."""
    for known in (DEFAULT, DEFAULT + SAME_BATCH, INCUMBENT):
        if known in contender.names:
            return known
    return contender.names[0]


def simplicity(setting: Setting, default: Setting) -> tuple[int, int, float]:
    """Return a key that is smaller for simpler settings: fewer threads, then nearer to the default.

    Threads are what the pools start in all; near is few knobs that differ, and these by little (log2).
    """
    values, usual = setting.to_dict(), default.to_dict()
    differing = [name for name in values if values[name] != usual.get(name)]
    steps = sum(
        abs(math.log2(1 + value) - math.log2(1 + other))
        for name in differing
        if isinstance(value := values[name], int) and isinstance(other := usual.get(name), int)
    )
    return n_threads(setting), len(differing), steps


def n_threads(setting: Setting) -> int:
    """Return how many threads a setting's pools start: each operator at once has its own OpenMP team."""
    values = setting.to_dict()
    inter, intra = int(values.get("inter_op", 1)), int(values.get("intra_op", 1))
    return inter + intra + inter * int(values.get("omp_num_threads", 0))
