"""Rules for people in a terminal: sentences with their evidence, the held-out table, what was covered and what not.

And on one screen: what to set in which situation, what that gains, who is better off without, what is unknown. That
summary is plain data, for a terminal and for pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.machine.host import Machine
from tuner.measure.recommendation import MUCH_LONGER
from tuner.quantity import percent, plural, ratio_text
from tuner.report.layout import left_out_text, table
from tuner.report.rulecores import BUILDS, IN_COLUMNS, Known, by_cores, title_by_cores
from tuner.result.recommendation import kind_text, n_studies, over_default, ratio_of, sentence
from tuner.rules.gains import CounterExample, Evidence
from tuner.rules.proof import HeldOut
from tuner.rules.recipe import BATCH, FRAMEWORK, LATENCY, ONEDNN, PROCESSES, TERMS, THREADS, acts_on, factor_words
from tuner.rules.rule import KEEP, Rule, RuleList, RuleSet
from tuner.rules.situation import FEATURES
from tuner.rules.strata import AdviceByStratum, Stratum, StratumClass, StratumEvidence, is_gain
from tuner.space.carrier import Variable
from tuner.space.groups import INSTANCES
from tuner.space.term import COMPACT, EIGEN, Scale
from tuner.space.values import Value

SHOWN_BASELINES = (
    *(each.name for each in FRAMEWORK.baselines if not each.needs),
    *(each.name for each in FRAMEWORK.width_guides),
)
_FEW = 3
PAPER = (
    "Wang et al. (TACO 2021) report 1.30 over Intel's and 1.38 over TensorFlow's settings on large Xeons; "
    "how much there is to gain grows with the cores"
)
RECALLED = "; ".join(f"{each.name} applies the formula of {each.source}" for each in FRAMEWORK.width_guides)
CLASS_TITLES = {
    StratumClass.ONEDNN_OFF: "oneDNN off",
    StratumClass.QUOTA: "a CPU quota",
    StratumClass.REST: "the rest",
}
HEADLINE = f"speed-up over {FRAMEWORK.catalogue.default} on held-out workloads"
DO_NO_HARM = (
    "A rule is applied only if it shows a gain: its mean over workloads exceeds the margin of {margin}, and its "
    "interval lies above 1. With fewer than six workloads the interval covers all cores together. Otherwise the "
    "default is kept, and also for a workload whose own study contradicts the rule. The policy is the rules with this "
    "step, learned each time without the held-out data"
)

TITLES = {THREADS: "threads", BATCH: "batch size", PROCESSES: "processes", LATENCY: "same latency"}
OF_PROCESSES = frozenset({PROCESSES, LATENCY})
NOT_KNOWN = {
    THREADS: "no study covers threads; to add some: tftune suite --space threads",
    BATCH: "no study covers batch sizes; to add some: tftune suite --space batch",
    PROCESSES: "no study covers several processes; to add some: tftune search resnet50, and others",
    LATENCY: "no study covers several processes with smaller batches; to add some: tftune suite --plan 15m",
}
FOLLOWED = "in each group, the first rule that applies is used"


def heading(rules: RuleSet) -> str:
    """Return what the rules are from, in a line."""
    provenance, groups = rules.provenance, rules.groups.values()
    workloads = {name for group in groups for names in group.coverage.workloads.values() for name in names}
    shapes = {name for group in groups for name in group.coverage.shapes}
    hosts = {name for group in groups for name in group.coverage.hosts}
    filters = ", ".join(f"{name} {text}" for name, text in provenance.filters.items())
    return (
        f"{plural(sum(len(group.rules) for group in groups), 'rule')} from {n_studies(provenance.n_studies)} of "
        f"{plural(len(workloads), 'workload')} on {plural(len(shapes), 'shape')} of "
        f"{plural(len(hosts), 'machine')}{f' ({filters})' if filters else ''}"
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A line of evidence; an `aside` is what most readers can pass over."""

    text: str
    aside: bool = False


def evidence_lines(evidence: Evidence) -> Iterator[Line]:
    """Yield the evidence of a rule, or of keeping the defaults, in a few lines."""
    yield Line(
        f"based on {n_studies(evidence.n_studies)} of {plural(len(evidence.workloads), 'workload')} on "
        f"{plural(evidence.n_shapes, 'machine shape')}; its setting was measured in {evidence.n_measured} of them"
    )
    for stratum_class, title in CLASS_TITLES.items():
        gains = evidence.gains.get(stratum_class, {})
        if gains:
            rates = ", ".join(f"{each} {ratio_of(gains[each])}" for each in SHOWN_BASELINES if each in gains)
            yield Line(f"speed-up if always applied, {title}: over {rates}")
    if evidence.expected is not None:
        yield Line(f"on held-out workloads: {ratio_of(evidence.expected.of_best)} of the best found")
    loss, compared, detectable = evidence.loss, evidence.compared, evidence.detectable_loss
    yield Line(
        f"below the best found by {percent(loss.median)} (median) and {percent(loss.worst)} (worst: "
        f"{loss.worst_study}); the median study measured {compared.median:g} settings, the smallest {compared.min}"
    )
    needed = "" if detectable is None else f"; the median study can detect a difference of {percent(detectable, 0)}"
    yield Line(f"tied with the best found in {evidence.n_tied} of {evidence.n_studies} studies{needed}")
    bad = evidence.counter_examples
    for each in bad[:_FEW]:
        default_note = "; the default is kept there" if not is_gain(each.over_default) else ""
        what = f"{each.situation.workload} {each.situation.mode}, {kind_text(each.situation)}"
        yield Line(f"counter-example: {what}: {over_default(each)}{default_note}", aside=True)
    if len(bad) > _FEW:
        yield Line(f"and {len(bad) - _FEW} more counter-examples (see --json)")
    if evidence.equivalents:
        yield Line(f"on these machines equal to: {'; '.join(evidence.equivalents)}", aside=True)


def headline_rows(group: RuleList) -> Iterator[tuple[str, ...]]:
    """Yield what a group's rules give by class of strata: studies, workloads, rules, policy, where they are advised."""
    for each in group.headline:
        yield (
            CLASS_TITLES[each.class_],
            str(each.n_studies),
            str(each.expected.over_default.n_workloads),
            ratio_of(each.expected.over_default),
            ratio_of(each.expected.policy),
            f"{each.n_followed} of {each.n_studies}",
        )


def stratum_rows(advice: AdviceByStratum) -> Iterator[tuple[str, ...]]:
    """Yield the same of one rule, by stratum."""
    for each in advice.strata:
        expected = each.expected
        yield (
            kind_text(each.kind),
            str(each.n_studies),
            str(each.gained.n_workloads),
            ratio_of(each.gained if expected is None else expected.over_default),
            ratio_of(None if expected is None else expected.policy),
            "rule" if each.is_advised else "default",
        )


HEADLINES = ("where", "studies", "workloads", "rules", "policy", "applied in")
STRATA = ("where", "studies", "workloads", "rule", "policy", "advised")


def policy_text(rules: RuleSet) -> str:
    """Return when a rule is followed."""
    return DO_NO_HARM.format(margin=percent(rules.provenance.margin, 0))


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table whose first column has words and the others figures."""
    return table(titles[0], *(f">{title}" for title in titles[1:]), rows=rows)


def _narrow(row: Sequence[str]) -> list[str]:
    """Return a row of strata without the policy's rate, which is the rule's or 1, so that it fits 80 columns."""
    return [cell for title, cell in zip(STRATA, row, strict=True) if title != "policy"]


def _but_default(rule: Rule) -> str:
    """Return on how many kinds of machine and build the default is kept though a rule holds, if there are such."""
    strata = rule.advice.strata if rule.terms else ()
    n_default, kinds = sum(not each.is_advised for each in strata), plural(len(strata), "kind")
    return f"; the default is kept on {n_default} of {kinds} of machine and build" if n_default else ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a group, with its evidence where there is any; and its rule, None of keeping what is there."""

    text: str
    evidence: Evidence | None
    rule: Rule | None = None


def statements(name: str, group: RuleList) -> Iterator[Statement]:
    """Yield each sentence of a group; the last says what holds where no rule does."""
    for number, rule in enumerate(group.rules):
        words = sentence(rule.if_ if rule.literals else None, rule.then, first=number == 0)
        yield Statement(f"{number + 1}. {words}{_but_default(rule)}", rule.evidence, rule)
    if not group.rules:
        yield Statement(f"No rule: {KEEP[name]}", group.default_evidence)
    elif group.default_evidence is not None:
        yield Statement(f"Otherwise: {KEEP[name]}", group.default_evidence)


def why_none(rules: RuleSet, group: RuleList) -> str | None:
    """Return why there is no rule in a group, None where there is one."""
    if group.rules:
        return None
    provenance = rules.provenance
    n = len({name for each in group.coverage.workloads.values() for name in each})
    if n < provenance.min_workloads:
        return (
            f"only {plural(n, 'workload')}: a rule needs at least {provenance.min_workloads}, because a few workloads "
            "agree by chance too often"
        )
    return (
        f"no rule gains {percent(provenance.min_gain, 0)} over several workloads clearly enough to rule out "
        f"noise (error rate 1 in {round(1 / provenance.level)})"
    )


def rule_lines(rules: RuleSet) -> Iterator[RenderableType]:
    """Yield every rule with its evidence, group by group."""
    for name in KEEP:
        group = rules.groups.get(name)
        yield Text(TITLES[name], style="bold underline")
        if group is None:
            yield Text(f"   {NOT_KNOWN[name]}")
            continue
        for statement in statements(name, group):
            yield Text(statement.text, style="bold")
            if statement.rule is not None and statement.rule.advice.strata:
                yield _table(_narrow(STRATA), map(_narrow, stratum_rows(statement.rule.advice)))
            for line in evidence_lines(statement.evidence) if statement.evidence is not None else ():
                yield Text(f"   {line.text}", style="dim" if line.aside else "")
        reason = why_none(rules, group)
        if reason:
            yield Text(f"   {reason}")


def left_out(proof: HeldOut) -> str:
    """Return what was left out, in words."""
    how = "one by one" if proof.one_by_one else "a fifth at a time"
    return f"each {proof.unit} held out, {how}: {proof.n_units} of them, {n_studies(proof.n_studies)}"


HELD_OUT = ("settings of", "of the best found", "worst", "tied with it", "measured")


def held_out_rows(proof: HeldOut) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a held-out table."""
    for row in proof.rows:
        yield (
            row.name,
            ratio_of(row.of_best),
            f"{row.worst:.2f}",
            f"{row.n_tied} of {proof.n_studies}",
            f"{row.n_measured} of {proof.n_studies}",
        )


def over_titles(proof: HeldOut) -> list[str]:
    """Return the header of the table of what the policy gains over others, by class of strata."""
    return ["policy over", *(CLASS_TITLES[each] for each in _classes(proof))]


def over_rows(proof: HeldOut) -> Iterator[tuple[str, ...]]:
    """Yield the rows of that table."""
    for other, by_class in proof.over.items():
        yield (other, *(ratio_of(by_class.get(each)) for each in _classes(proof)))


def _classes(proof: HeldOut) -> list[StratumClass]:
    return [each for each in StratumClass if any(each in by_class for by_class in proof.over.values())]


def proofs(rules: RuleSet) -> Iterator[tuple[str, HeldOut | None]]:
    """Yield each held-out table with its title; None where there is only one of what would be left out."""
    for name, group in rules.groups.items():
        scope = "at the workload's own batch size"
        if name in (BATCH, LATENCY):
            scope = f"{'threads and batch size, ' if name == BATCH else ''}at any batch size"
        tests = (("workload", group.proof.by_workload), ("machine", group.proof.by_machine))
        for what, proof in (*tests, ("shape", group.proof.by_shape)):
            if proof is not None:
                yield f"{TITLES[name]}, {scope}; {left_out(proof)}", proof
            elif what != "shape":
                yield f"{TITLES[name]}: no test with a {what} held out, as there is only one", None


def held_out(title: str, proof: HeldOut | None) -> RenderableType:
    """Return a held-out table."""
    if proof is None:
        return Text(title, style="dim")
    # Short, so that it fits 80 columns: tied with the best found.
    rendered = _table(("settings of", "of best found", "worst", "tied", "measured"), held_out_rows(proof))
    return Group(Text(title, style="bold"), rendered, _table(over_titles(proof), over_rows(proof)))


def covered(rules: RuleSet) -> Iterator[str]:
    """Yield what the evidence is from."""
    for name, group in rules.groups.items():
        coverage = group.coverage
        yield f"{TITLES[name]}: {n_studies(coverage.n_studies)}"
        for key, shape in coverage.shapes.items():
            yield f"{shape.host}, {shape.shape} (id {key}): {n_studies(shape.n_studies)}"
        for title, n in coverage.runtimes.items():
            yield f"{title}: {n_studies(n)}"
        for mode, names in coverage.workloads.items():
            yield f"{mode}: {', '.join(names)}"


def not_covered(rules: RuleSet) -> Iterator[str]:
    """Yield what the rules do not speak of, and which studies were left out."""
    yield from never_measured(rules)
    for reason, names in rules.provenance.excluded.items():
        yield left_out_text(reason, names)


def never_measured(rules: RuleSet) -> Iterator[str]:
    """Yield of which machines, builds and modes there is no study, group by group."""
    for name, group in rules.groups.items():
        yield f"{TITLES[name]}: {', '.join(_not_covered(group.coverage.ranges))}"


def _not_covered(ranges: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Yield what lies beyond the ranges of the features."""
    if "cores" in ranges:
        yield f"machines with more than {ranges['cores'][1]:.0f} cores"
    for feature in (each for each in FEATURES if each.is_binary and each.name in ranges):
        low, high = ranges[feature.name]
        if low == high:
            yield feature.words[int(low)]
    if "sockets" in ranges and ranges["sockets"][1] < 2:
        yield "several sockets"
    if "oversubscribed" in ranges and ranges["oversubscribed"][1] <= 1:
        yield "CPU quotas"


def _headline(name: str, group: RuleList) -> Iterator[RenderableType]:
    if group.headline:
        yield from (Text(f"{TITLES[name]}, {HEADLINE}:"), _table(HEADLINES, headline_rows(group)))


def page(rules: RuleSet) -> Sequence[RenderableType]:
    """Return everything, for a terminal."""
    tables = [part for title, proof in proofs(rules) for part in (held_out(title, proof), "")]
    return [
        Text(heading(rules), style="bold"),
        *(part for name, group in rules.groups.items() for part in _headline(name, group)),
        Text(f"{policy_text(rules)}.", style="dim"),
        "",
        Text(FOLLOWED, style="dim"),
        "",
        *rule_lines(rules),
        "",
        *tables,
        Text(f"{RECALLED}.", style="dim"),
        Text(f"{PAPER}.", style="dim"),
        "",
        Text("covered", style="bold"),
        *(Text(f"   {line}") for line in covered(rules)),
        Text("not covered", style="bold"),
        *(Text(f"   {line}") for line in not_covered(rules)),
    ]


# ---- on one screen --------------------------------------------------------------------------------------------------

NOTHING = "nothing"
_ALL, _OTHERS = "all", "all others"
_USABLE_CORES = "usable are the physical cores that the process may run on, at most the CPU limit"
_ONEDNN_OFF = "a stock wheel leaves it off on CPUs without AVX-512 VNNI or its like; tftune inspect shows it"
_SPEED_UP = (
    "items per second over the defaults of the same build on the same machine (rows do not compare builds). It is the "
    "mean of models, each left out of the learning in turn, with the 95 % interval of this mean. A single model may "
    "lie outside it. Other machines may differ more"
)
_CALL = (
    "how many times as long a call takes, in the mean and with every process busy, as one call at a time under the "
    "defaults. It is the batch size relative to the workload's own, times the processes, divided by the speed-up. "
    "Rules know neither p99 nor memory. tftune search shows both"
)
_SAME_LATENCY = (
    f"several processes, mostly with smaller batches. A setting whose call takes more than {MUCH_LONGER:g} times as "
    "long as under the defaults counts as no speed-up, and the excess as a loss"
)
_NO_SITUATIONS = "these rules do not show where they gain"
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
    rows, sets, more, by_model = [], dict[tuple[tuple[str, str], ...], VariableSet](), [], []
    for rule, stratum in sorted(_situations(group), key=lambda pair: _order(pair[1].kind)):
        kind = stratum.kind
        values = tuple(_values(rule, kind)) if stratum.is_advised else ()
        if values and values not in sets:
            example = "" if name == BATCH else _example(rule, stratum)
            sets[values] = VariableSet(
                letter=next(letters), values=values, guides=tuple(_guides(rule)), example=example
            )
        against = [each for each in rule.evidence.counter_examples if kind.covers(each.situation)]
        exceptions = [each for each in against if not is_gain(each.over_default)] if values else []
        more += [_more_text(each, kind) for each in against if values and is_gain(each.over_default)]
        if values and name in OF_PROCESSES:
            models = _by_model(group, rule, kind)
            by_model.append(f"{sets[values].letter} on {kind_text(kind)}, by model (estimates, held out): {models}")
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
                _call(stratum) if values else "—",
                ", ".join(f"{each.situation.workload} {each.over_default:.2f}×" for each in exceptions) or "—",
            )
        )
    first = 1 if all(row[0] in (_ALL, _OTHERS) for row in rows) else 0  # which models is said where rules ask for it
    notes = by_model
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
        no_rule=_NO_SITUATIONS if why is None else f"no rule, {KEEP[name]}: {why}{_single_models(group)}",
    )


def _by_model(group: RuleList, rule: Rule, kind: Stratum) -> str:
    """Return the speed-up of each model to which rules without it gave the same on such machines, the largest first."""
    tested, recipe = group.proof.by_workload, rule.recipe.words(kind.pool)
    logs: dict[str, list[float]] = {}
    for each in () if tested is None else tested.studies:
        if kind.covers(each.situation) and each.recipe[-1:] == (recipe,):
            logs.setdefault(each.situation.workload, []).append(math.log(each.over_default))
    return _listed({workload: math.exp(fmean(own)) for workload, own in logs.items()})


def _listed(gains: Mapping[str, float]) -> str:
    """Return the gains of models in a line, the largest first."""
    return ", ".join(f"{name} {gains[name]:.2f}×" for name in sorted(gains, key=gains.__getitem__, reverse=True))


def _single_models(group: RuleList) -> str:
    """Return what the best setting found gains in each model on the most cores that were studied, if any gains."""
    tested = group.proof.by_workload
    studies = () if tested is None else tested.studies
    most = max((int(each.situation.cores or 0) for each in studies), default=0)
    of_most = (each for each in studies if int(each.situation.cores or 0) == most)
    gains = {each.situation.workload: each.best_over.get(FRAMEWORK.catalogue.default, 1.0) for each in of_most}
    found = _listed({name: gain for name, gain in gains.items() if is_gain(gain)})
    if not found:
        return ""
    return f"; the best settings found for single models on {plural(most, 'core')} (estimates): {found}"


def _situations(group: RuleList) -> Iterator[tuple[Rule, StratumEvidence]]:
    """Yield every rule that sets something with each of its strata."""
    yield from ((rule, stratum) for rule in group.rules if rule.terms for stratum in rule.advice.strata)


def _build(kind: Stratum) -> str:
    """Return what a build is called, with the GPU that computes."""
    return f"{BUILDS[kind.pool]}, {kind.gpu}" if kind.gpu else BUILDS[kind.pool]


def _order(kind: Stratum) -> tuple[bool, bool, bool, int, str]:
    """Return what puts stock wheels before other builds, oneDNN and no limit first, and few cores before many."""
    return kind.pool != EIGEN, not kind.onednn, kind.quota, int(kind.cores or 0), kind.shape or ""


def _models(rule: Rule, group: RuleList) -> str:
    """Return which models a rule is about: its condition without what the other columns show."""
    words = [str(each) for each in rule.literals if each.feature not in IN_COLUMNS]
    return " and ".join(words) or (_ALL if rule is group.rules[0] else _OTHERS)


def _values(rule: Rule, kind: Stratum) -> Iterator[tuple[str, str]]:
    """Yield what a rule sets on such a build: variables, or the batch size, with their values in words."""
    for knob, term in rule.terms.items():
        if knob == BATCH:
            yield "batch size", factor_words(term)
            continue
        if knob == INSTANCES:
            yield TITLES[PROCESSES], f"{TERMS[knob][term].words}, each on cores of its own"
            for name, value in _variables(FRAMEWORK.threads_on(2), kind):  # two, to tell a number from the cores
                yield name, "1" if value == 1 else "its cores"
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


def _variables(values: Mapping[str, Value], kind: Stratum) -> Iterator[tuple[str, Value]]:
    """Yield the variables that carry values of knobs, of those that act on such a build."""
    for knob, value in values.items():
        carrier = FRAMEWORK.knobs[knob].carrier
        if isinstance(carrier, Variable) and acts_on(knob, kind.pool):
            yield carrier.name, value


def _example(rule: Rule, stratum: StratumEvidence) -> str:
    """Return the variables of a rule in full, on a machine of one socket."""
    kind, n_processes = stratum.kind, stratum.n_processes or 1
    cores = int(kind.cores or 1)
    usable = cores if kind.cpu_limit is None else min(cores, math.ceil(float(kind.cpu_limit)))
    scale = Scale(
        cores=usable, sockets=1, pools=1, batch_size=1, pool=kind.pool, onednn=kind.onednn, on_gpu=bool(kind.gpu)
    )
    values = rule.recipe.values(scale) if n_processes == 1 else FRAMEWORK.threads_on(usable // n_processes)
    texts = []
    for name, value in _variables(values, kind):
        own = rule.example.env.get(name) if rule.example is not None and value == COMPACT else None
        texts.append(f"{name}={value if own is None else own}")
    limit = f", CPU limit {kind.cpu_limit}" if kind.cpu_limit else ""
    batch = f"{factor_words(rule.terms[BATCH])} as the batch, " if BATCH in rule.terms else ""
    several = f"{n_processes} processes, each with {batch}" if n_processes > 1 else ""
    return f"on {kind.cores or 'any'} core{'' if cores == 1 else 's'}{limit}: {several}{' '.join(texts)}"


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


def _more_text(each: CounterExample, kind: Stratum) -> str:
    """Return of which workload a search found more, and where."""
    limit = f", limit {kind.cpu_limit}" if kind.cpu_limit else ""
    return f"{each.situation.workload} {1 / each.of_best:.2f}× ({_build(kind)}, {kind.cores} cores{limit})"


CORE_TITLES = ("cores", "of", "what to set")


def core_rows(rules: RuleSet) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of what to set by the number of cores; a title is not said twice.

    If nothing is known of a group, it has no row next to groups of which something is.
    """
    by_class = dict(by_cores(rules))
    # A group that sets nothing anywhere has its own sentence below.
    groups = [name for name in KEEP if any(each.tried for cells in by_class.values() for each in cells[name])]
    for cores, cells in by_class.items():
        known = [name for name in groups if cells[name][0].known is not Known.UNKNOWN or cells[name][0].basis]
        lines = [(name, str(each)) for name in known for each in cells[name]] or [("", str(Known.UNKNOWN))]
        names = ["", *(name for name, _ in lines)]
        for i, (name, text) in enumerate(lines):
            yield "" if i else cores, "" if name == names[i] else TITLES[name], text


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
    bases = dict.fromkeys(each.basis for group in rules.predicted.values() for each in group)
    if bases:
        yield "Predicted", f"by the model of the machine: {'; '.join(bases)}"
    for name, group in rules.groups.items():
        yield "Measured", f"{TITLES[name]}: {_measured(name, group)}"


def _legend(rules: RuleSet, kinds: Sequence[Stratum]) -> Iterator[tuple[str, str]]:
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
    if LATENCY in rules.groups:
        yield "Same latency", _SAME_LATENCY
    yield "Not for", _NOT_FOR


def _measured(name: str, group: RuleList) -> str:
    """Return what the studies of a group are from."""
    coverage = group.coverage
    hosts, n = "; ".join(coverage.hosts), "one process and several" if name in OF_PROCESSES else "one process"
    return f"{', '.join(coverage.runtimes)}; {' and '.join(coverage.workloads)}, {n}; on {hosts}"


def rendered(rules: RuleSet, machine: Machine) -> Sequence[RenderableType]:
    """Return the summary for a terminal."""
    parts: list[RenderableType] = [Text(f"{heading(rules)}, {rules.provenance.created[:10]}", style="bold")]
    parts += [table(*CORE_TITLES, title=title_by_cores(rules), rows=core_rows(rules)), ""]
    groups = [rules.groups[name] for name in KEEP if name in rules.groups]
    here = dict.fromkeys(text for group in groups for text in group.coverage.outside_on(machine))
    if here:
        parts += [Text(f"! never measured on a machine like this one: {'; '.join(here)}", style="bold yellow")]
        parts += [Text("  what follows may not hold here; tftune search measures it"), ""]
    for each in sorted(summary(rules), key=lambda group: not group.rows):  # those without a rule have a line each
        parts += _rendered_group(each)
    parts += [""]
    rows = [*notes(rules), *(("Unknown", line) for line in never_measured(rules))]
    width = max(len(title) for title, _ in rows) + 2
    return [*parts, *(Text.assemble((title.ljust(width), "bold"), text) for title, text in rows)]


def _rendered_group(group: GroupSummary) -> Iterator[RenderableType]:
    if not group.rows:
        yield Text.assemble((f"{group.title}: ", "bold"), group.no_rule)
        return
    cells: list[list[RenderableType]] = [
        [Text(letters, style="bold green"), *words] for letters, *words in set_cells(group)
    ]
    yield from (table(*group.columns, title=group.title, rows=group.rows), "", table(*SET_COLUMNS, rows=cells))
    yield from map(Text, (*set_notes(group), *group.notes))
    yield ""
