"""Verdicts: what the finals allow to be said about the incumbent against each baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.measure.finals import SAME_BATCH, Contender
from tuner.measure.statistics import Array, Estimate, contrast
from tuner.space.baseline import DEFAULT

INCUMBENT = "incumbent"


class Word(StrEnum):
    """What is said of a speed-up."""

    BETTER = "better"
    NO_DIFFERENCE = "no difference"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The speed-up of the incumbent over a baseline with its 95 % interval; None where nothing was measured."""

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


def judge(estimate: Estimate, threshold: float) -> Verdict:
    """Return the verdict on a log-ratio; `threshold` (0.02 for 2 %) is what makes a difference in practice.

    better or worse: the interval excludes 1, and the estimate is beyond the threshold. no difference: the whole
    interval lies inside the threshold. Anything else is undecided: no evidence, no claim.
    """
    low, high = estimate.interval()
    speedup, most = estimate.ratio, 1 + threshold
    if low > 1 and speedup > most:
        word = Word.BETTER
    elif high < 1 and speedup < 1 / most:
        word = Word.WORSE
    elif low >= 1 / most and high <= most:
        word = Word.NO_DIFFERENCE
    else:
        word = Word.UNDECIDED
    if estimate.df <= 0:
        return UNMEASURED
    return Verdict(speedup=speedup, low=low, high=high, word=word)


def judge_all(names: Sequence[str], y: Array, contenders: Sequence[Contender], threshold: float) -> dict[str, Verdict]:
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
            verdict = judge(contrast(y, column[contender.names[0]], column[winner.names[0]]), threshold)
        else:
            verdict = UNMEASURED
        verdicts |= {name: verdict for name in contender.names if name != INCUMBENT}
    return verdicts


def decided(verdicts: Mapping[str, Verdict]) -> bool:
    """Return whether no further round could change anything that is open."""
    return all(verdict.word is not Word.UNDECIDED for verdict in verdicts.values())


def recommend(names: Sequence[str], y: Array, contenders: Sequence[Contender], threshold: float) -> str:
    """Return the name of the contender to use: TensorFlow's default unless another is better than it.

    Among those that are better, the incumbent, unless a simpler one does as well: the default threads at the
    winner's batch size when there is no difference between the two; or unless a baseline beat it.
    """
    column = {
        name: names.index(c.names[0])
        for c in contenders
        for name in c.names
        if c.eligible and c.names[0] in names and len(y)
    }
    if DEFAULT not in column or INCUMBENT not in column:
        return DEFAULT

    def word(better: str, than: str) -> Word:
        if column[better] == column[than]:
            return Word.NO_DIFFERENCE
        return judge(contrast(y, column[than], column[better]), threshold).word

    good = [name for name in column if word(name, DEFAULT) is Word.BETTER]
    if not good:
        return DEFAULT
    fastest = max(good, key=lambda name: float(y[:, column[name]].mean()))
    chosen = INCUMBENT if INCUMBENT in good and word(fastest, INCUMBENT) is not Word.BETTER else fastest
    simple = DEFAULT + SAME_BATCH
    if simple in good and word(chosen, simple) is Word.NO_DIFFERENCE:
        return simple
    return chosen
