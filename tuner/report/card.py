"""The verdict card: what was found, what to set, why, and what to do next, in about a dozen lines.

A card is plain data. `rendered` draws it for a terminal; others may draw it for a page.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from tuner.measure.finals import GROUP, INCUMBENT, ONE_PROCESS, SAME_BATCH, SIMPLER
from tuner.paths import DEFAULT_STORAGE
from tuner.report.emit import Ways
from tuner.report.layout import duration_text, ms_text, percent, plural, rate_text
from tuner.report.result.comparison import CheckResult, ComparisonResult, SideResult
from tuner.report.result.study import (
    FinalsResult,
    RecommendedResult,
    StudyResult,
    VerdictResult,
    WarningResult,
)
from tuner.report.terminal import cores_text, setting_text
from tuner.report.verdicts import rounds_text
from tuner.search.subject import Subject
from tuner.space.deployment import Deployment
from tuner.space.values import Value
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import LimitStatus

_BATCH_SIZE = "batch_size"
_ROUND_UP_S = 300.0  # budgets are suggested in steps of five minutes
_LONGEST_S = 7200.0  # nobody waits for longer than that


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of a card: a mark and a word that say it, the sentence, and the words of what to set."""

    code: VerdictCode
    word: str
    text: str
    setting: tuple[str, ...]

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
_STYLES = {
    VerdictCode.BETTER: "bold green",
    VerdictCode.NO_DIFFERENCE: "bold cyan",
    VerdictCode.UNDECIDED: "bold yellow",
    VerdictCode.WORSE: "bold red",
}


def rendered(card: Card) -> list[Text]:
    """Return the lines of a card as a terminal shows it; they are not wrapped, so that commands can be copied."""
    lines: list[Text] = []
    for answer in card.answers:
        style = _STYLES[answer.code]
        lines += [Text.assemble((f"{answer.mark} {answer.word}", style), f"  {answer.text}"), Text()]
        lines += [Text("  " + "  ".join(answer.setting), style="green"), Text()] if answer.setting else []
    width = max((len(title) for title, _ in card.rows), default=0) + 2
    return lines + [Text.assemble((title.ljust(width), "bold"), text) for title, text in card.rows]


# ---- studies --------------------------------------------------------------------------------------------------


def study_card(study: StudyResult, *, handle: str, storage: str = DEFAULT_STORAGE) -> Card:
    """Return the card of a study; `handle` is what its user calls it, such as `last`."""
    stored = "" if storage == DEFAULT_STORAGE else f" --storage {shlex.quote(storage)}"
    advice, finals = study.recommended, study.finals
    if advice is None or finals is None:
        answer = Answer(
            code=VerdictCode.UNDECIDED,
            word="UNFINISHED",
            text=f"{study.workload.name}: there are no finals yet",
            setting=(),
        )
        return Card(answers=(answer,), rows=(("Next", "run the same search again: it continues"),))
    answers = [_answer(study, advice, finals, study.verdicts or {}, of=study.workload.name)]
    several = study.groups
    if several is not None:
        answers.append(
            _answer(study, several.recommended, several.finals, several.verdicts, of=_processes_text(several.finals))
        )
    rows = [
        ("Why", _why(study, advice, finals)),
        ("Proof", _proof(study, advice, finals)),
        ("Valid", f"{where(study)}; measure again elsewhere"),
        *_deciding(study, finals),
        *_next_steps(study, handle, stored),
        *notes(study.warnings),
    ]
    return Card(answers=tuple(answers), rows=tuple(rows))


def _answer(
    study: StudyResult,
    advice: RecommendedResult,
    finals: FinalsResult,
    by_name: dict[str, VerdictResult],
    *,
    of: str,
) -> Answer:
    """Return what finals say about `of`: a workload, or several processes of it."""
    defaults = f"{study.framework.title}'s defaults" if study.framework.title != "command" else "the defaults"
    words = deployment_words(advice.deployment, study)
    if advice.gain is not None:
        code = VerdictCode.BETTER
        text = f"{of}: {speed_up(advice.gain)} over {defaults}{_rates_text(study, advice, finals)}"
        return Answer(code=code, word="FASTER", text=text, setting=words)
    against = advice.together or by_name.get(study.default)
    if advice.source != study.default:  # the default breaks a limit
        return Answer(code=VerdictCode.BETTER, word="USE", text=f"{of}: {advice.reason}", setting=words)
    if against is None or against.speedup is None:
        text = f"{of}: keep {defaults}; no speed-up can be named"
        return Answer(code=VerdictCode.UNDECIDED, word="UNDECIDED", text=text, setting=())
    interval = f"{against.low:.2f}–{against.high:.2f}×"
    if against.code is VerdictCode.NO_DIFFERENCE:
        text = f"{of}: nothing to set; the best other setting runs at {interval} the speed of {defaults}"
        return Answer(code=against.code, word="NO DIFFERENCE", text=text, setting=())
    if against.code is VerdictCode.UNDECIDED:
        text = f"{of}: keep {defaults} for now; the best other setting runs at {interval} their speed"
        return Answer(code=against.code, word="UNDECIDED", text=text, setting=())
    if against.code is VerdictCode.WORSE:
        text = f"{of}: keep {defaults}; the best other setting is slower, {speed_up(against)}"
        return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=text, setting=())
    return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=f"{of}: {advice.reason}", setting=())


def _processes_text(finals: FinalsResult) -> str:
    """Return how many processes side by side the finals were about."""
    return f"{finals.incumbent.get('instances', 'several')} processes side by side"


def speed_up(verdict: VerdictResult | ComparisonResult) -> str:
    """Return a speed-up with its interval, to the digits that the interval leaves meaning."""
    if verdict.speedup is None or verdict.low is None or verdict.high is None:
        return "no speed-up"
    digits = 3 if verdict.high - verdict.low < 0.02 else 2
    return f"{verdict.speedup:.{digits}f}× [{verdict.low:.{digits}f}–{verdict.high:.{digits}f}]"


def _rates_text(study: StudyResult, advice: RecommendedResult, finals: FinalsResult) -> str:
    """Return the rates behind a gain; of several sessions these are only the last one's, and are left out."""
    if advice.gain is not None and advice.gain.sessions > 1:
        return ""
    rates = [_rate_of(finals, name) for name in (study.default, advice.source)]
    known = [rate_text(rate) for rate in rates if rate is not None]
    return f" ({known[0]} → {known[1]} {finals.unit})" if len(known) == 2 else ""


def _rate_of(finals: FinalsResult, name: str) -> float | None:
    """Return the rate of the contender that has a name."""
    return next((finals.rates.get(first) for first, names in finals.names.items() if name in names), None)


def deployment_words(deployment: Deployment, subject: Subject) -> tuple[str, ...]:
    """Return the words of what to set: variables, options and CPUs, and the batch size where it is another."""
    if not deployment:
        return ()
    words = [f"{name}={value}" for name, value in {**deployment.env, **deployment.options}.items()]
    for member in deployment.members:
        own = [f"{name}={value}" for name, value in {**member.env, **member.options}.items()]
        words.append(f"{member.name}: {' '.join(own)}" + (f" on CPUs {member.cpus}" if member.cpus else ""))
    if deployment.cpus is not None:
        words.append(f"CPUs {deployment.cpus}")
    if deployment.cpu_sets:
        words.append(f"CPUs {' | '.join(deployment.cpu_sets)}")
    if deployment.streams > 1:
        words.append(f"{deployment.streams} calls at once")
    usual = subject.baselines[subject.default].setting
    for name, value in deployment.arguments.items():
        title = "batch" if name == _BATCH_SIZE else name
        words.append(f"{title} {value} " + ("(unchanged)" if usual.get(name) == value else f"(default {usual[name]})"))
    return tuple(words)


def facts(study: StudyResult, advice: RecommendedResult) -> list[str]:
    """Return what a snippet says of itself: what is gained, when that was seen, and where it holds."""
    gained = advice.reason
    if advice.gain is not None:
        sessions = plural(advice.gain.sessions, "session")
        gained = f"{speed_up(advice.gain)} the speed of the defaults ({study.workload.name}, {sessions})"
    limits = [] if advice.limits is None else [f"limits {advice.limits}"]
    return [f"{gained}, {str(study.created)[:10]}", "; ".join([f"Measured on {where(study)}", *limits])]


def ways(study: StudyResult) -> Ways:
    """Return the ways of a study's framework to apply a setting."""
    framework = study.framework
    return Ways(session=framework.session_code, server_flags=framework.server_flags, calls=framework.calls)


def _why(study: StudyResult, advice: RecommendedResult, finals: FinalsResult) -> str:
    """Return why this is recommended."""
    if advice.limits is LimitStatus.BROKEN or (advice.source != study.default and advice.gain is None):
        return advice.reason
    if advice.source == study.default:
        if advice.gain is None and advice.together is not None and advice.together.sessions > 1:
            return advice.reason
        return f"no setting was shown to be more than {percent(finals.margin, 0)} faster"
    same = _same_as(study, finals, advice.source)
    parts = []
    if advice.source == study.default + SAME_BATCH:
        parts.append("all of the gain comes from the batch size; the threads stay as they are")
    elif len(advice.alike) > 1:
        parts.append(f"the simplest of {len(advice.alike)} settings tied for the fastest")
    else:
        parts.append("the fastest in the finals")
    if same:
        parts.append(f"the same as {' and '.join(same)}")
    return "; ".join(parts)


def _same_as(study: StudyResult, finals: FinalsResult, source: str) -> list[str]:
    """Return the recommended settings that are the same as what is recommended here."""
    own = {INCUMBENT, GROUP, SIMPLER, ONE_PROCESS}
    names = next((names for names in finals.names.values() if source in names), ())
    return [name for name in names if name in study.baselines and name not in own]


def _proof(study: StudyResult, advice: RecommendedResult, finals: FinalsResult) -> str:
    """Return what the answer rests on."""
    n = study.trials.ok + study.trials.pruned
    several = "" if study.groups is None else f" + {study.groups.finals.rounds}"
    n_sessions = 1 if advice.together is None else advice.together.sessions
    rounds = finals.rounds if study.groups is None else 2
    return (
        f"{plural(n, 'setting')} measured in turns with the default; then {finals.rounds}{several} "
        f"{'round' if rounds == 1 else 'rounds'} of new processes; {plural(n_sessions, 'session')}"
    )


def where(subject: Subject) -> str:
    """Return what a result is valid for: cores, limit and build."""
    return f"{cores_text(subject.machine)}, {subject.framework.build_lines(subject.runtime)[0]}"


def _deciding(study: StudyResult, finals: FinalsResult) -> Iterator[tuple[str, str]]:
    """Yield how long a budget would decide what is undecided."""
    advice = study.recommended
    if advice is None or advice.gain is not None or study.verdicts is None:
        return
    against = study.verdicts.get(study.default)
    if against is None or against.code is not VerdictCode.UNDECIDED:
        return
    budget_s = deciding_budget_s(study, finals, against)
    if budget_s is None:
        yield "Decide", "tftune cannot say how long it would take: there were too few rounds"
    elif budget_s > _LONGEST_S:
        yield "Decide", f"it would take more than {duration_text(_LONGEST_S)} on this machine: the difference is small"
    else:
        yield "Decide", f"about {duration_text(budget_s)}: the same command with --time-budget {round(budget_s / 60)}m"


def deciding_budget_s(study: StudyResult, finals: FinalsResult, against: VerdictResult) -> float | None:
    """Return the budget (s) of a search whose finals would decide, if the difference is what it seems to be.

    With n rounds the interval's half-width is h (log scale). Half-widths shrink with √n, so that m rounds have
    h √(n / m), and the verdict is decided where that is below the distance of the mean x̄ from 0 (better or worse), or
    that from the margin δ (no difference): m = n (h / max(|x̄|, δ - |x̄|))². A round costs what it cost, starts
    included, and the finals have half of a budget.
    """
    n, wall_s, measured_s = finals.rounds, study.wall_s, study.measured_s
    if None in (against.speedup, against.low, against.high) or n < 2 or not wall_s or not measured_s:
        return None
    assert against.speedup is not None  # for mypy: as asked above
    assert against.low is not None
    assert against.high is not None
    mean = abs(math.log(against.speedup))
    half = (math.log(against.high) - math.log(against.low)) / 2
    margin = math.log1p(finals.margin)
    is_different = mean > margin
    rounds = n * (half / (mean if is_different else max(mean, margin - mean))) ** 2
    round_s = finals.timed_s / n * (wall_s / measured_s)
    needed_s = 2 * max(rounds, n + 1) * round_s
    return math.ceil(max(needed_s, wall_s) / _ROUND_UP_S) * _ROUND_UP_S


def _next_steps(study: StudyResult, handle: str, stored: str) -> Iterator[tuple[str, str]]:
    """Yield the commands that come next."""
    advice, several = study.recommended, study.groups
    if advice is not None and (advice.deployment or advice.deployment.members):
        yield "Apply", f"tftune emit {handle}{stored} --format sh|docker|k8s|tfserving|systemd|python|…"
        yield "Run", f"tftune run {handle}{stored} -- python serve.py"
    if several is not None and several.recommended.deployment.processes > 1:
        n = several.recommended.deployment.processes
        command = f"tftune run {handle}{stored} --instances -- python serve.py --port 80{{instance}}"
        yield f"Run {n}", f"{command}   (or: tftune emit {handle}{stored} --instances)"
    if advice is not None and advice.gain is not None:
        yield "Check", f"tftune check {handle}{stored}   (on another day: one session may be lucky)"
    yield "More", f"tftune report {handle}{stored} --open, or tftune show {handle}{stored} --details"


def notes(warnings: Sequence[WarningResult]) -> Iterator[tuple[str, str]]:
    """Yield a row for each warning."""
    for warning in warnings:
        yield "Note", f"{warning.code}: {warning.found}; {warning.advice}"


# ---- comparisons ----------------------------------------------------------------------------------------------


def comparison_card(result: ComparisonResult) -> Card:
    """Return the card of a comparison of b with a."""
    a, b = (result.sides[name] for name in ("a", "b"))
    rates = "" if a.rate is None or b.rate is None else f" ({rate_text(a.rate)} → {rate_text(b.rate)} {result.unit})"
    margin = percent(result.margin, 0)
    if result.code is VerdictCode.UNDECIDED:
        known = result.low is not None and result.high is not None
        text = f"b runs at {result.low:.2f}–{result.high:.2f}× the speed of a" if known else "no speed-up can be named"
    else:
        text = f"b runs at {speed_up(result)} the speed of a{rates}"
    answer = Answer(code=result.code, word=_COMPARED[result.code], text=text, setting=())
    rows = [(name, _side_text(side, setting)) for name, side, setting in (("a", a, result.a), ("b", b, result.b))]
    if result.code is VerdictCode.UNDECIDED:
        rows.append(("Why", str(result.reason)))
    rows += [(name, text) for name, text in result.failures.items()]
    seconds = duration_text(result.timed_s)
    rows.append(("Proof", f"{rounds_text(result)}, {seconds} timed; differences under {margin} are treated as equal"))
    return Card(answers=(answer,), rows=(*rows, *notes(result.warnings)))


_COMPARED = {
    VerdictCode.BETTER: "FASTER",
    VerdictCode.WORSE: "SLOWER",
    VerdictCode.NO_DIFFERENCE: "NO DIFFERENCE",
    VerdictCode.UNDECIDED: "UNDECIDED",
}


def _side_text(side: SideResult, setting: Mapping[str, Value]) -> str:
    """Return a side of a comparison: its setting, what it was called, and the quantiles of its step."""
    asked = "" if "=" in side.asked else f"  ({side.asked})"
    times = ", ".join(f"p{p} {ms_text(ms)} ms" for p, ms in ((50, side.p50), (99, side.p99)) if ms is not None)
    return f"{setting_text(setting)}{asked}" + (f"; {times}" if times else "")


def check_card(result: CheckResult) -> Card:
    """Return the card of a check: what all sessions of a recommendation say together, and what this one says."""
    together = result.together
    word = {True: "STILL FASTER", False: "NO LONGER FASTER", None: "UNDECIDED"}[result.helps]
    code = {True: VerdictCode.BETTER, False: VerdictCode.WORSE, None: VerdictCode.UNDECIDED}[result.helps]
    if together.low is None or together.high is None:
        figure = "no speed-up can be named"
    elif together.code is VerdictCode.UNDECIDED:
        figure = f"{together.low:.2f}–{together.high:.2f}× the speed of the defaults"
    else:
        figure = f"{speed_up(together)} over the defaults"
    disagree = ", which disagree" if together.sessions_disagree else ""
    text = f"{result.study}: {figure}, {plural(together.sessions, 'session')}{disagree}"
    now = comparison_card(result)
    rows = [("Now", f"{now.answers[0].word.lower()}: {now.answers[0].text}"), *now.rows]
    if result.limits:
        rows.append(("Limits", f"{result.limits['b']} by the recommendation, {result.limits['a']} by the defaults"))
    return Card(answers=(Answer(code=code, word=word, text=text, setting=()),), rows=tuple(rows))
