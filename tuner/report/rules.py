"""Rules for people in a terminal: sentences with their evidence, the held-out table, what was covered and what not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.frameworks.tensorflow.baselines import WANG, WANG_SOURCE
from tuner.report.layout import left_out_text, percent, plural, ratio_text, table
from tuner.rules.recipe import BATCH
from tuner.rules.rule import KEEP
from tuner.rules.schema import THREADS
from tuner.rules.situation import FEATURE, FEATURES
from tuner.rules.strata import CLASSES, ONEDNN_OFF, QUOTA, REST, AdviceReason, RuleDecision, is_gain
from tuner.space.term import OPENMP

SHOWN_BASELINES = ("tf-default", "tf-guide", "tf-guide-mkl", "intel", "intel-zoo", "wang-width")
_FEW = 3
PAPER = (
    "Wang et al. (TACO 2021) report 1.30 over Intel's and 1.38 over TensorFlow's settings on large Xeons; "
    "how much there is to gain grows with the cores"
)
RECALLED = f"{WANG} applies the formula of {WANG_SOURCE}"
CLASS_TITLES = {ONEDNN_OFF: "oneDNN off", QUOTA: "a CPU quota", REST: "the rest"}
HEADLINE = "speed-up over tf-default on held-out workloads"
DO_NO_HARM = (
    "A rule is applied only where it shows a gain: its mean over workloads exceeds the margin of {margin}, and its "
    "interval lies above 1. Elsewhere the default is kept, and also for a workload whose own study contradicts the "
    "rule. The policy is the rules with this step, learned each time without the held-out data"
)

TITLES = {THREADS: "threads", BATCH: "batch size"}
NOT_KNOWN = {
    THREADS: "no study covers threads; to add some: tftune suite --space threads",
    BATCH: "no study covers batch sizes; to add some: tftune suite --space batch",
}
FOLLOWED = "in each group, the first rule that applies is used"


def ratio_of(data: Mapping[str, Any] | None) -> str:
    """Return a stored ratio with its interval."""
    return "—" if data is None else ratio_text(data["ratio"], data["low"], data["high"])


def kind_of(data: Mapping[str, Any]) -> str:
    """Return a kind of machine and build in words; a build alone has no shape."""
    off = "" if data["onednn"] else f" {FEATURE['onednn'].words[1]}"
    shape = data.get("shape", f"any number of cores{', a quota' if data['quota'] else ''}")
    return f"{shape} {FEATURE[OPENMP].words[data['pool'] != OPENMP]}{off}"


def reason(decision: RuleDecision) -> str:
    """Return why a rule is not followed, with the figure."""
    row = decision.row
    if row is None:
        return _NO_FIGURE[decision.advice]
    if decision.advice is AdviceReason.OWN_STUDY:
        return f"a study of this workload contradicts the rule ({kind_of(row)}): {over_default(row)}"
    gained = row["gained"]
    return (
        f"the rule shows no gain ({kind_of(row)}): {ratio_of(gained)} over the default, mean over "
        f"{plural(gained['workloads'], 'held-out workload')}"
    )


_NO_FIGURE = {
    AdviceReason.NO_EVIDENCE: "no study covers this build, so the effect of the rule is unknown",
    AdviceReason.NO_RULE: "no rule applies",
    AdviceReason.BY_RULE: "the rule that applies keeps the default",
}


def over_default(counter_example: Mapping[str, Any]) -> str:
    """Return what a rule did in a study that speaks against it."""
    ratio = ratio_text(counter_example["over_default"], counter_example["low"], counter_example["high"])
    return f"{ratio} over tf-default, {percent(counter_example['of_best'], 0)} of the best found"


def n_studies(n: int) -> str:
    """Return a number of studies."""
    return f"{n} stud{'y' if n == 1 else 'ies'}"


def heading(document: Mapping[str, Any]) -> str:
    """Return what the rules are from, in a line."""
    provenance, groups = document["made"], document["groups"].values()
    workloads = {name for group in groups for names in group["coverage"]["workloads"].values() for name in names}
    shapes = {name for group in groups for name in group["coverage"]["shapes"]}
    hosts = {name for group in groups for name in group["coverage"]["hosts"]}
    filters = ", ".join(f"{name} {text}" for name, text in provenance["filters"].items())
    return (
        f"{plural(sum(len(group['rules']) for group in groups), 'rule')} from {n_studies(provenance['n_studies'])} of "
        f"{plural(len(workloads), 'workload')} on {plural(len(shapes), 'shape')} of "
        f"{plural(len(hosts), 'machine')}{f' ({filters})' if filters else ''}"
    )


def sentence(condition: str | None, then: str, *, first: bool) -> str:
    """Return a rule as a sentence; `first` of its list or not. One without a condition holds everywhere."""
    if condition is not None:
        return f"If {condition}: {then}"
    return f"{'Everywhere' if first else 'Otherwise'}: {then}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of evidence; an `aside` is what most readers can pass over."""

    text: str
    aside: bool = False


def evidence_lines(evidence: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the evidence of a rule, or of keeping the defaults, in a few lines."""
    if not evidence["studies"]:
        return
    yield Line(
        f"based on {n_studies(evidence['studies'])} of {plural(len(evidence['workloads']), 'workload')} on "
        f"{plural(evidence['shapes'], 'machine shape')}; its setting was measured in {evidence['measured']} of them"
    )
    for name in CLASSES:
        gains = evidence["gain"].get(name, {})
        if gains:
            rates = ", ".join(f"{each} {ratio_of(gains[each])}" for each in SHOWN_BASELINES if each in gains)
            yield Line(f"speed-up if always applied, {CLASS_TITLES[name]}: over {rates}")
    expected = evidence.get("expected")
    if expected:
        yield Line(f"on held-out workloads: {ratio_of(expected['of_best'])} of the best found")
    loss, compared, detectable = evidence["loss"], evidence["compared"], evidence["told_apart"]
    yield Line(
        f"below the best found by {percent(loss['median'])} (median) and {percent(loss['worst'])} (worst: "
        f"{loss['worst_study']}); the median study measured {compared['median']:g} settings, the smallest "
        f"{compared['least']}"
    )
    needed = "" if detectable is None else f"; the median study can detect a difference of {percent(detectable, 0)}"
    yield Line(f"tied with the best found in {evidence['right']} of {evidence['studies']} studies{needed}")
    bad = evidence["counter_examples"]
    for each in bad[:_FEW]:
        default_note = "; the default is kept there" if not is_gain(each["over_default"]) else ""
        what = f"{each['workload']} {each['mode']}, {kind_of(each)}"
        yield Line(f"counter-example: {what}: {over_default(each)}{default_note}", aside=True)
    if len(bad) > _FEW:
        yield Line(f"and {len(bad) - _FEW} more counter-examples (see --json)")
    equivalents = evidence.get("same_there")
    if equivalents:
        yield Line(f"on these machines equal to: {'; '.join(equivalents)}", aside=True)


def headline_rows(group: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield what a group's rules give by class of strata: studies, workloads, rules, policy, where they are advised."""
    for each in group["headline"]:
        n, total = each["followed"], each["studies"]
        yield (
            CLASS_TITLES[each["class"]],
            str(total),
            str(each["workloads"]),
            ratio_of(each),
            ratio_of(each["policy"]),
            f"{n} of {total}",
        )


def stratum_rows(evidence: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the same of one rule, by stratum."""
    for each in evidence.get("strata", ()):
        yield (
            kind_of(each),
            str(each["studies"]),
            str(each["gained"]["workloads"]),
            ratio_of(each if "ratio" in each else each["gained"]),
            ratio_of(each.get("policy")),
            "rule" if each["advice"] == AdviceReason.FOLLOW else "default",
        )


HEADLINES = ("where", "studies", "workloads", "rules", "policy", "applied in")
STRATA = ("where", "studies", "workloads", "rule", "policy", "advised")


def policy_text(document: Mapping[str, Any]) -> str:
    """Return when a rule is followed."""
    return DO_NO_HARM.format(margin=percent(document["made"]["margin"], 0))


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table whose first column has words and the others figures."""
    rendered = table(titles[0], *(f">{title}" for title in titles[1:]))
    for row in rows:
        rendered.add_row(*row)
    return rendered


def _narrow(row: Sequence[str]) -> list[str]:
    """Return a row of strata without the policy's rate, which is the rule's or 1, so that it fits 80 columns."""
    return [cell for title, cell in zip(STRATA, row, strict=True) if title != "policy"]


def _but_default(rule: Mapping[str, Any]) -> str:
    """Return in how many strata the default is kept though a rule holds, where there are such."""
    strata = rule["evidence"]["strata"] if rule["recipe"] else ()
    n_default = sum(each["advice"] != AdviceReason.FOLLOW for each in strata)
    total_text = plural(len(strata), "stratum", "strata")
    return f"; no gain in {n_default} of {total_text}: keep the default there" if n_default else ""


def statements(name: str, group: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each sentence of a group with its evidence; the last says what holds where no rule does."""
    for number, rule in enumerate(group["rules"]):
        words = sentence(rule["if"] if rule["condition"] else None, rule["then"], first=number == 0)
        yield f"{number + 1}. {words}{_but_default(rule)}", rule["evidence"]
    if not group["rules"]:
        yield f"No rule: {KEEP[name]}", group["otherwise"]
    elif group["otherwise"]["studies"]:
        yield f"Otherwise: {KEEP[name]}", group["otherwise"]


def why_none(document: Mapping[str, Any], group: Mapping[str, Any]) -> str | None:
    """Return why there is no rule in a group, None where there is one."""
    if group["rules"]:
        return None
    provenance, names = document["made"], group["coverage"]["workloads"].values()
    n = len({name for each in names for name in each})
    fewest = provenance["fewest_workloads"]
    if n < fewest:
        return (
            f"only {plural(n, 'workload')}: a rule needs at least {fewest}, because a few workloads agree by chance "
            "too often"
        )
    return (
        f"no rule gains {percent(provenance['least_gain'], 0)} over several workloads clearly enough to rule out "
        f"noise (error rate 1 in {round(1 / provenance['level'])})"
    )


def rule_lines(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield every rule with its evidence, group by group."""
    for name in KEEP:
        group = document["groups"].get(name)
        yield Text(TITLES[name], style="bold underline")
        if group is None:
            yield Text(f"   {NOT_KNOWN[name]}")
            continue
        for statement, evidence in statements(name, group):
            yield Text(statement, style="bold")
            if evidence.get("strata"):
                yield _table(_narrow(STRATA), map(_narrow, stratum_rows(evidence)))
            for line in evidence_lines(evidence):
                yield Text(f"   {line.text}", style="dim" if line.aside else "")
        reason = why_none(document, group)
        if reason:
            yield Text(f"   {reason}")


def left_out(proof: Mapping[str, Any]) -> str:
    """Return what was left out, in words."""
    how = "one by one" if proof["one_by_one"] else "a fifth at a time"
    return f"each {proof['what']} held out, {how}: {proof['kinds']} in {n_studies(proof['studies'])}"


HELD_OUT = ("settings of", "of the best found", "worst", "tied with it", "measured")


def held_out_rows(proof: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a held-out table."""
    for row in proof["rows"]:
        yield (
            row["name"],
            ratio_of(row["of_best"]),
            f"{row['worst']:.2f}",
            f"{row['right']} of {proof['studies']}",
            f"{row['measured']} of {proof['studies']}",
        )


def over_titles(proof: Mapping[str, Any]) -> list[str]:
    """Return the header of the table of what the policy gains over others, by class of strata."""
    return ["policy over", *(CLASS_TITLES[name] for name in _classes(proof))]


def over_rows(proof: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of that table."""
    for other, by_class in proof["over"].items():
        yield (other, *(ratio_of(by_class.get(name)) for name in _classes(proof)))


def _classes(proof: Mapping[str, Any]) -> list[str]:
    return [name for name in CLASSES if any(name in by_class for by_class in proof["over"].values())]


def proofs(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Yield each held-out table with its title; None where there is only one of what would be left out."""
    for name, group in document["groups"].items():
        for what, by in (("workload", "by_workload"), ("machine", "by_machine"), ("shape", "by_shape")):
            proof = group["proof"].get(by)
            scope = (
                "at the workload's own batch size" if name == THREADS else "threads and batch size, at any batch size"
            )
            if proof is not None:
                yield f"{TITLES[name]}, {scope}; {left_out(proof)}", proof
            elif what != "shape":
                yield f"{TITLES[name]}: no test with a {what} held out, as there is only one", None


def held_out(title: str, proof: Mapping[str, Any] | None) -> RenderableType:
    """Return a held-out table."""
    if proof is None:
        return Text(title, style="dim")
    # Short, so that it fits 80 columns: right is what is tied with the best found.
    rendered = _table(("settings of", "of best found", "worst", "right", "measured"), held_out_rows(proof))
    return Group(Text(title, style="bold"), rendered, _table(over_titles(proof), over_rows(proof)))


def covered(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the evidence is from."""
    for name, group in document["groups"].items():
        coverage = group["coverage"]
        yield f"{TITLES[name]}: {n_studies(coverage['n_studies'])}"
        for key, shape in coverage["shapes"].items():
            yield f"{shape['host']}, {shape['shape']} (id {key}): {n_studies(shape['studies'])}"
        for title, n in coverage["runtimes"].items():
            yield f"{title}: {n_studies(n)}"
        for mode, names in coverage["workloads"].items():
            yield f"{mode}: {', '.join(names)}"


def not_covered(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the rules do not speak of, and which studies were left out."""
    for name, group in document["groups"].items():
        ranges = group["coverage"]["ranges"]
        yield f"{TITLES[name]}: {', '.join(_not_covered(ranges))}"
    for reason, names in document["made"]["excluded"].items():
        yield left_out_text(reason, names)


def _not_covered(ranges: Mapping[str, Sequence[float]]) -> Iterator[str]:
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


def _headline(name: str, group: Mapping[str, Any]) -> Iterator[RenderableType]:
    if group["headline"]:
        yield from (Text(f"{TITLES[name]}, {HEADLINE}:"), _table(HEADLINES, headline_rows(group)))


def page(document: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Return everything, for a terminal."""
    tables = [part for title, proof in proofs(document) for part in (held_out(title, proof), "")]
    return [
        Text(heading(document), style="bold"),
        *(part for name, group in document["groups"].items() for part in _headline(name, group)),
        Text(f"{policy_text(document)}.", style="dim"),
        "",
        Text(FOLLOWED, style="dim"),
        "",
        *rule_lines(document),
        "",
        *tables,
        Text(f"{RECALLED}.", style="dim"),
        Text(f"{PAPER}.", style="dim"),
        "",
        Text("covered", style="bold"),
        *(Text(f"   {line}") for line in covered(document)),
        Text("not covered", style="bold"),
        *(Text(f"   {line}") for line in not_covered(document)),
    ]
