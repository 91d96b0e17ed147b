"""The verdict card: what was found, what to set, why, and what to do next, in about a dozen lines.

A card is plain data. `rendered` draws it for a terminal; others may draw it for a page. That of a study is made in
`tuner.report.studycard`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from tuner.quantity import duration_text, energy_text, ms_text, percent, rate_text, ratio_text
from tuner.report.terminal import setting_text
from tuner.report.verdicts import VERDICT_STYLES, asked_text, rounds_text
from tuner.result.comparison import CheckResult, ComparisonResult, NothingToCheck, SideResult
from tuner.result.study import WarningResult
from tuner.result.wording import disagreement, range_text, sessions_words, speed_up, wording
from tuner.space.values import Value
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import LimitStatus
from tuner.workload.feed import InputFacts, inputs_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of a card: a mark and a word that say it, the sentence, and the words of what to set."""

    code: VerdictCode
    word: str
    text: str
    setting: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Return the sign that stands before the word."""
        return _MARKS[self.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A verdict: its answers, the main one first, and rows of a title and a text."""

    answers: tuple[Answer, ...]
    rows: tuple[tuple[str, str], ...]


_MARKS = {
    VerdictCode.BETTER: "✔",
    VerdictCode.NO_DIFFERENCE: "=",
    VerdictCode.UNDECIDED: "?",
    VerdictCode.WORSE: "✘",
}


def rendered(card: Card) -> list[Text]:
    """Return the lines of a card as a terminal shows it; they are not wrapped, so that commands can be copied."""
    lines: list[Text] = []
    for answer in card.answers:
        style = f"bold {VERDICT_STYLES[answer.code]}"
        lines += [Text.assemble((f"{answer.mark} {answer.word}", style), f"  {answer.text}"), Text()]
        lines += [Text("  " + "  ".join(answer.setting), style="green"), Text()] if answer.setting else []
    width = max((len(title) for title, _ in card.rows), default=0) + 2
    return lines + [Text.assemble((title.ljust(width), "bold"), text) for title, text in card.rows]


def input_rows(inputs: Sequence[InputFacts]) -> list[tuple[str, str]]:
    """Return the row that lists what tftune feeds to a model; none where there is nothing to list."""
    return [("Inputs", inputs_text(inputs))] if inputs else []


def notes(warnings: Sequence[WarningResult]) -> Iterator[tuple[str, str]]:
    """Yield a row for each warning."""
    for warning in warnings:
        yield "Note", f"{warning.code}: {warning.found}; {warning.advice}"


def comparison_card(result: ComparisonResult) -> Card:
    """Return the card of a comparison of b with a."""
    a, b = (result.sides[name] for name in ("a", "b"))
    rates = "" if a.rate is None or b.rate is None else f" ({rate_text(a.rate)} → {rate_text(b.rate)} {result.unit})"
    margin, words = percent(result.margin, 0), wording(result.objective)
    if result.code is VerdictCode.UNDECIDED:
        known = result.low is not None and result.high is not None
        text = f"b runs at {range_text(result)} the {words.quantity} of a" if known else "no estimate"
    else:
        text = f"b runs at {speed_up(result)} the {words.quantity} of a{rates}"
    compared = {
        VerdictCode.BETTER: words.better,
        VerdictCode.WORSE: words.worse,
        VerdictCode.NO_DIFFERENCE: "NO DIFFERENCE",
        VerdictCode.UNDECIDED: "UNDECIDED",
    }
    answer = Answer(code=result.code, word=compared[result.code], text=text)
    rows = [
        (name, _side_text(side, setting, shows_steps=not result.objective.is_of_command))
        for name, side, setting in (("a", a, result.a), ("b", b, result.b))
    ]
    if result.code is VerdictCode.UNDECIDED:
        rows.append(("Why", str(result.reason)))
    rows += [(name, text) for name, text in result.failures.items()]
    seconds = duration_text(result.timed_s)
    rows.append(("Proof", f"{rounds_text(result)}, {seconds} timed; differences under {margin} are treated as equal"))
    return Card(answers=(answer,), rows=(*rows, *input_rows(result.inputs), *notes(result.warnings)))


def _side_text(side: SideResult, setting: Mapping[str, Value], *, shows_steps: bool) -> str:
    """Return a side of a comparison: its setting, what it was called, and the quantiles of its step.

    Of a command no steps are seen.
    """
    times = ", ".join(f"p{p} {ms_text(ms)} ms" for p, ms in ((50, side.p50), (99, side.p99)) if ms is not None)
    parts = [times] if times and shows_steps else []
    parts += [] if side.energy_j is None else [f"{energy_text(side.energy_j)} per item"]
    return "; ".join([f"{setting_text(setting)}{asked_text(side)}", *parts])


def nothing_to_check_card(result: NothingToCheck) -> Card:
    """Return the card of a check of a study that recommends the default."""
    answer = Answer(code=VerdictCode.NO_DIFFERENCE, word="NOTHING TO CHECK", text=result.reason)
    return Card(answers=(answer,), rows=())


def check_card(result: CheckResult) -> Card:
    """Return the card of a check: what all sessions of a recommendation say together, and what this one says."""
    together, words = result.together, wording(result.objective)
    limits = result.limits or {}
    if limits.get("b") is LimitStatus.BROKEN:
        word = "NO LONGER ALLOWED: it breaks a limit"
    elif result.latency is not None and result.latency.low > 1:
        word = "NO LONGER AT THE SAME LATENCY"
    elif limits.get("a") is LimitStatus.BROKEN:
        word = "STILL NEEDED: the defaults break a limit"
    else:
        word = {True: f"STILL {words.better}", False: f"NO LONGER {words.better}", None: "UNDECIDED"}[result.helps]
    code = {True: VerdictCode.BETTER, False: VerdictCode.WORSE, None: VerdictCode.UNDECIDED}[result.helps]
    if together.low is None or together.high is None:
        figure = "no estimate"
    elif together.code is VerdictCode.UNDECIDED:
        figure = f"{range_text(together)} the {words.quantity} of the defaults"
    else:
        figure = f"{speed_up(together)} {words.over} the defaults"
    text = f"{result.study}: {figure}, {sessions_words(together)}{disagreement(together)}"
    now = comparison_card(result)
    rows = [("Now", f"{now.answers[0].word.lower()}: {now.answers[0].text}"), *now.rows]
    if result.latency is not None:
        price = ratio_text(result.latency.ratio, result.latency.low, result.latency.high)
        rows.append(("Latency", f"a call takes {price} times as long"))
    if result.limits:
        rows.append(("Limits", f"{result.limits['b']} by the recommendation, {result.limits['a']} by the defaults"))
    return Card(answers=(Answer(code=code, word=word, text=text),), rows=tuple(rows))
