"""The rules on one screen: what to set in which situation, what that gains, who is better off without, what is unknown.

A summary is plain data, for a terminal and for pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from tuner.machine.host import Machine
from tuner.quantity import ratio_text
from tuner.report.layout import table
from tuner.report.rules import NOT_KNOWN, TITLES, heading, never_measured, why_none
from tuner.rules.gains import CounterExample
from tuner.rules.kind import Kind
from tuner.rules.recipe import BATCH, FRAMEWORK, ONEDNN, TERMS, factor_words
from tuner.rules.rule import KEEP, Rule, RuleList, RuleSet
from tuner.rules.strata import StratumEvidence, is_gain
from tuner.space.carrier import Variable
from tuner.space.term import COMPACT, EIGEN, OPENMP, Scale

NOTHING = "nothing"
_BUILDS = {EIGEN: "stock", OPENMP: "OpenMP"}
_OF_THE_BUILD = frozenset({OPENMP, ONEDNN})
"""Features that the columns of a situation show already."""
_ALL, _OTHERS = "all", "all others"
_USABLE_CORES = "usable are the physical cores that the process may run on, at most the CPU limit"
_ONEDNN_OFF = "a stock wheel leaves it off on CPUs without AVX-512 VNNI or its like; tftune inspect tells"
_SPEED_UP = (
    "items per second over the defaults of the same build on the same machine (rows do not compare builds): the mean "
    "of models, each left out of the learning in turn, with its 95 % interval over models, not over machines"
)
_CALL = (
    "times as long as under the defaults, by the speed-up and the batch size; rules know neither p99 nor memory, which "
    "tftune search shows of a model"
)
_NO_SITUATIONS = "these rules do not say where they gain"
_NOT_FOR = "models of these studies that are better off with the defaults, by what the set would give them"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableSet:
    """What a letter stands for: variables with their values in words; guides that set the same; and an example."""

    letter: str
    values: tuple[tuple[str, str], ...]
    guides: tuple[str, ...]
    example: str
    """The variables in full, in the first situation of the table that has the set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """The rules of a group: situations, sets of variables, and where a search finds more; or why there is no rule."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """A situation each: the letter of what to set, the gain, how long a call takes, and who is better off without."""
    sets: tuple[VariableSet, ...] = ()
    notes: tuple[str, ...] = ()
    no_rule: str
    """Why there is no table, where there is none."""


_COLUMNS = (
    "models",
    "build",
    "oneDNN",
    "CPU limit",
    "cores",
    "machines",
    "set",
    "speed-up if set",
    "a call takes",
    "not for",
)


def summary(rules: RuleSet) -> list[GroupSummary]:
    """Return what a team has to know of rules, group by group."""
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return [
        _group(rules, name, rules.groups[name], letters)
        if name in rules.groups
        else GroupSummary(title=TITLES[name], no_rule=NOT_KNOWN[name])
        for name in KEEP
    ]


def _group(rules: RuleSet, name: str, group: RuleList, letters: Iterator[str]) -> GroupSummary:
    """Return the summary of a group, whose sets take the next letters."""
    rows, sets, more = [], dict[tuple[tuple[str, str], ...], VariableSet](), []
    for rule, stratum in sorted(_situations(group), key=lambda pair: _order(pair[1].kind)):
        kind = stratum.kind
        values = tuple(_values(rule, kind)) if stratum.is_advised else ()
        if values and values not in sets:
            example = "" if name == BATCH else _example(rule, kind)
            sets[values] = VariableSet(
                letter=next(letters), values=values, guides=tuple(_guides(rule)), example=example
            )
        against = [each for each in rule.evidence.counter_examples if kind.covers(each.situation)]
        exceptions = [each for each in against if not is_gain(each.over_default)] if values else []
        more += [_more_text(each, kind) for each in against if values and is_gain(each.over_default)]
        rows.append(
            (
                _models(rule, group),
                _build(kind),
                "on" if kind.onednn else "off",
                kind.cpu_limit or "none",
                kind.cores or "any",
                str(stratum.n_machines or "—"),
                sets[values].letter if values else NOTHING,
                _speed_up(stratum),
                _call(stratum),
                ", ".join(f"{each.situation.workload} {each.over_default:.2f}×" for each in exceptions) or "—",
            )
        )
    first = 1 if all(row[0] in (_ALL, _OTHERS) for row in rows) else 0  # which models is said where rules ask for it
    notes = []
    if more:
        notes.append(f"By the studies' estimates another setting gives a tenth or more over the set: {', '.join(more)}")
    if any(not rule.terms for rule in group.rules) or group.default_evidence is not None:
        notes.append(f"Elsewhere: {KEEP[name]}")
    why = why_none(rules, group)
    return GroupSummary(
        title=TITLES[name],
        columns=_COLUMNS[first:],
        rows=tuple(row[first:] for row in rows),
        sets=tuple(sets.values()),
        notes=tuple(notes),
        no_rule=_NO_SITUATIONS if why is None else f"no rule, {KEEP[name]}: {why}",
    )


def _situations(group: RuleList) -> Iterator[tuple[Rule, StratumEvidence]]:
    """Yield every rule that sets something with each of its strata."""
    yield from ((rule, stratum) for rule in group.rules if rule.terms for stratum in rule.advice.strata)


def _build(kind: Kind) -> str:
    """Return what a build is called, with the GPU that computes."""
    return f"{_BUILDS[kind.pool]}, {kind.gpu}" if kind.gpu else _BUILDS[kind.pool]


def _order(kind: Kind) -> tuple[bool, bool, bool, int, str]:
    """Return what puts stock wheels before other builds, oneDNN and no limit first, and few cores before many."""
    return kind.pool != EIGEN, not kind.onednn, kind.quota, int(kind.cores or 0), kind.shape or ""


def _models(rule: Rule, group: RuleList) -> str:
    """Return which models a rule is about: its condition without what the other columns show."""
    words = [str(each) for each in rule.literals if each.feature not in _OF_THE_BUILD]
    return " and ".join(words) or (_ALL if rule is group.rules[0] else _OTHERS)


def _values(rule: Rule, kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield what a rule sets on such a build: variables, or the batch size, with their values in words."""
    for knob, term in rule.terms.items():
        if knob == BATCH:
            yield "batch size", factor_words(term)
            continue
        vocabulary, carrier = FRAMEWORK.knobs[knob].vocabulary, FRAMEWORK.knobs[knob].carrier
        acts = vocabulary is not None and vocabulary.pool in (None, kind.pool) and (knob != ONEDNN or not kind.onednn)
        if acts and isinstance(carrier, Variable):
            yield carrier.name, _value_text(rule, carrier.name, knob, term)


def _value_text(rule: Rule, variable: str, knob: str, term: str) -> str:
    """Return the value of a variable in words, a number as it is typed."""
    words = TERMS[knob][term].words
    if term == COMPACT and rule.example is not None:
        return rule.example.env.get(variable, words)
    if term.isdigit() and words != term:
        remark = words.removeprefix(term).strip()
        return f"{term}, {remark}" if "(" in remark else f"{term} ({remark})"
    return words


def _example(rule: Rule, kind: Kind) -> str:
    """Return the variables of a rule in full, on a machine of one socket."""
    cores = int(kind.cores or 1)
    usable = cores if kind.cpu_limit is None else min(cores, math.ceil(float(kind.cpu_limit)))
    scale = Scale(
        cores=usable, sockets=1, pools=1, batch_size=1, pool=kind.pool, onednn=kind.onednn, on_gpu=bool(kind.gpu)
    )
    values = rule.recipe.values(scale)
    texts = []
    for knob, value in values.items():
        carrier = FRAMEWORK.knobs[knob].carrier
        if isinstance(carrier, Variable):
            own = rule.example.env.get(carrier.name) if rule.example is not None and value == COMPACT else None
            texts.append(f"{carrier.name}={value if own is None else own}")
    limit = f", CPU limit {kind.cpu_limit}" if kind.cpu_limit else ""
    return f"on {kind.cores or 'any'} core{'' if cores == 1 else 's'}{limit}: {' '.join(texts)}"


def _guides(rule: Rule) -> Iterator[str]:
    """Yield the guides that set the same in all studies of a rule, with what they are."""
    for baseline in FRAMEWORK.baselines:
        if f"what {baseline.name} sets" in rule.evidence.equivalents:
            yield f"{baseline.source.partition(';')[0]} ({baseline.name})"


def _speed_up(stratum: StratumEvidence) -> str:
    """Return what a rule gains over the defaults on workloads that it had not seen."""
    gain = stratum.gained if stratum.expected is None else stratum.expected.over_default
    return ratio_text(gain.ratio, gain.low, gain.high, "×")


def _call(stratum: StratumEvidence) -> str:
    """Return how many times as long a call takes under a rule; its interval is as wide as that of the speed-up."""
    return "—" if stratum.call is None else ratio_text(stratum.call.ratio, None, None, "×")


def _more_text(each: CounterExample, kind: Kind) -> str:
    """Return of which workload a search found more, and where."""
    limit = f", limit {kind.cpu_limit}" if kind.cpu_limit else ""
    return f"{each.situation.workload} {1 / each.of_best:.2f}× ({_build(kind)}, {kind.cores} cores{limit})"


SET_COLUMNS = ("set", "variable", "value")


def set_cells(group: GroupSummary) -> Iterator[tuple[str, str, str]]:
    """Yield each variable with its value, after the letters of the sets that it is in."""
    letters: dict[tuple[str, str], list[str]] = {}
    for each in group.sets:
        for value in each.values:
            letters.setdefault(value, []).append(each.letter)
    yield from ((" ".join(sets), name, value) for (name, value), sets in letters.items())


def set_notes(group: GroupSummary) -> Iterator[str]:
    """Yield which guides set the same, and what a set is in full."""
    letters: dict[str, list[str]] = {}
    for each in group.sets:
        for guide in each.guides:
            letters.setdefault(guide, []).append(each.letter)
    yield from (f"{' '.join(sets)}: the same as {guide}" for guide, sets in letters.items())
    yield from (f"{each.letter} {each.example}" for each in group.sets if each.example)


def notes(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield what the words of the tables mean, as far as they are there, and what the figures are."""
    kinds = [stratum.kind for group in rules.groups.values() for _, stratum in _situations(group)]
    if kinds:
        yield from _legend(rules, kinds)
    for text in dict.fromkeys(map(_measured, rules.groups.values())):
        yield "Measured", text


def _legend(rules: RuleSet, kinds: Sequence[Kind]) -> Iterator[tuple[str, str]]:
    """Yield what the words of the tables mean."""
    terms = {term for group in rules.groups.values() for rule in group.rules for term in rule.terms.values()}
    yield (
        "Build",
        "stock: the wheel that pip installs, oneDNN on TensorFlow's own threads; OpenMP: oneDNN on OpenMP threads",
    )
    if any("cores" in term for term in terms):
        yield "Cores", _USABLE_CORES
    if any(not kind.onednn for kind in kinds):
        yield "oneDNN", _ONEDNN_OFF
    yield "Speed-up", _SPEED_UP
    yield "A call", _CALL
    yield "Not for", _NOT_FOR


def _measured(group: RuleList) -> str:
    """Return what the studies of a group are from."""
    coverage = group.coverage
    hosts = "; ".join(coverage.hosts)
    return f"{', '.join(coverage.runtimes)}; {' and '.join(coverage.workloads)}, one process; on {hosts}"


def rendered(rules: RuleSet, machine: Machine) -> Sequence[RenderableType]:
    """Return the summary for a terminal."""
    parts: list[RenderableType] = [Text(f"{heading(rules)}, {rules.provenance.created[:10]}", style="bold"), ""]
    groups = [rules.groups[name] for name in KEEP if name in rules.groups]
    here = dict.fromkeys(text for group in groups for text in group.coverage.outside_on(machine))
    if here:
        parts += [Text(f"! never measured on a machine like this one: {'; '.join(here)}", style="bold yellow")]
        parts += [Text("  what follows may not hold here; tftune search measures it"), ""]
    for each in summary(rules):
        parts += _rendered_group(each)
    rows = [*notes(rules), *(("Unknown", line) for line in never_measured(rules))]
    return [*parts, *(Text.assemble((title.ljust(10), "bold"), text) for title, text in rows)]


def _rendered_group(group: GroupSummary) -> Iterator[RenderableType]:
    if not group.rows:
        yield from (Text.assemble((f"{group.title}: ", "bold"), group.no_rule), "")
        return
    situations = table(*group.columns, title=group.title)
    for row in group.rows:
        situations.add_row(*row)
    variables = table(*SET_COLUMNS)
    for letters, *words in set_cells(group):
        variables.add_row(Text(letters, style="bold green"), *words)
    yield from (situations, "", variables, "")
    yield from map(Text, (*set_notes(group), *group.notes))
    yield ""
