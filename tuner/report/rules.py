"""Rules for people in a terminal: sentences with their evidence, the held-out table, what was covered and what not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tuner.report.layout import percent, ratio_text, table

SHOWN_BASELINES = ("tf-default", "tf-guide", "tf-guide-mkl", "intel", "intel-zoo", "wang-width")
_MOST_STUDIES = 3
PAPER = (
    "Wang et al. (TACO 2021) report 1.30 over Intel's and 1.38 over TensorFlow's settings on large Xeons; "
    "how much there is to gain grows with the cores"
)


def ratio_of(data: Mapping[str, Any] | None) -> str:
    """Return a stored ratio with its interval."""
    return "—" if data is None else ratio_text(data["ratio"], data["low"], data["high"])


def plural(n: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{n} {word}{'' if n == 1 else 's'}"


def n_studies(n: int) -> str:
    """Return a number of studies."""
    return f"{n} stud{'y' if n == 1 else 'ies'}"


def heading(document: Mapping[str, Any]) -> str:
    """Return what the rules are from, in a line."""
    coverage = document["coverage"]
    workloads = {name for names in coverage["workloads"].values() for name in names}
    simulated = " that are simulated, not measured," if document["made"]["simulated"] else ""
    filters = ", ".join(f"{name} {text}" for name, text in document["made"]["filters"].items())
    return (
        f"{plural(len(document['rules']), 'rule')} from {n_studies(coverage['n_studies'])}{simulated} of "
        f"{plural(len(workloads), 'workload')} on {plural(len(coverage['machines']), 'shape')} of "
        f"{plural(len(coverage['hosts']), 'machine')}{f' ({filters})' if filters else ''}"
    )


def sentence(rule: Mapping[str, Any], before: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a rule as a sentence; of its group, those `before` it come first."""
    when = rule["if"]
    if when == "everywhere":
        when = "Otherwise" if any(other["group"] == rule["group"] for other in before) else "Everywhere"
    else:
        when = f"If {when}"
    return f"{when}: {rule['then']}"


def evidence_lines(evidence: Mapping[str, Any]) -> Iterator[str]:
    """Yield the evidence of a rule, or of keeping the defaults, in a few lines."""
    if not evidence["studies"]:
        yield "no study is left without a rule"
        return
    yield (
        f"seen in {n_studies(evidence['studies'])} of {plural(len(evidence['workloads']), 'workload')} on "
        f"{plural(evidence['machines'], 'machine shape')}; its setting was measured itself in {evidence['measured']}"
    )
    gains = [(name, ratio_of(evidence["gain"].get(name))) for name in SHOWN_BASELINES if evidence["gain"].get(name)]
    yield "rate over " + ", ".join(f"{name} {text}" for name, text in gains)
    expected = evidence.get("expected")
    if expected:
        yield f"held out, by what the other workloads say: {ratio_of(expected)} over tf-default"
    loss = evidence["loss"]
    yield (
        f"loses {percent(loss['median'])} of the best found in the median, {percent(loss['worst'])} at worst "
        f"({loss['worst_study']}); not told apart from the best in {evidence['right']} of {evidence['studies']}"
    )
    bad = evidence["counter_examples"]
    for each in bad[:_MOST_STUDIES]:
        yield (
            f"counter-example: {each['workload']} {each['mode']}, {each['machine']}: "
            f"{ratio_text(each['over_default'], each['low'], each['high'])} over tf-default, "
            f"{percent(each['of_best'], 0)} of the best found"
        )
    if len(bad) > _MOST_STUDIES:
        yield f"and {len(bad) - _MOST_STUDIES} counter-examples more (--json has them)"
    same = evidence.get("same_there")
    if same:
        yield f"on these machines the same as: {'; '.join(same)}"


def rule_lines(document: Mapping[str, Any]) -> Iterator[Text]:
    """Yield every rule with its evidence."""
    for number, rule in enumerate(document["rules"], start=1):
        yield Text(f"{number}. {sentence(rule, document['rules'][: number - 1])}", style="bold")
        for line in evidence_lines(rule["evidence"]):
            yield Text(f"   {line}", style="dim" if line.startswith(("counter", "on these")) else "")
    if document["rules"] and not document["otherwise"]["studies"]:
        return
    default = "Otherwise: keep TensorFlow's defaults" if document["rules"] else "No rule: keep TensorFlow's defaults"
    yield Text(default, style="bold")
    for line in evidence_lines(document["otherwise"]):
        yield Text(f"   {line}")
    if not document["rules"]:
        made = document["made"]
        yield Text(
            f"   nothing gains {percent(made['least_gain'], 0)} over the defaults in {made['least_workloads']} "
            "workloads or more, so clearly that noise would look like it in less than 1 of "
            f"{round(1 / made['level'])} cases"
        )


def left_out(proof: Mapping[str, Any]) -> str:
    """Return what was left out, in words."""
    each = "each" if proof["one_by_one"] else "a fifth of them at a time, each"
    return f"{each} {proof['what']} left out: {proof['kinds']} of them, {n_studies(proof['studies'])}"


def held_out(proof: Mapping[str, Any] | None, what: str) -> RenderableType:
    """Return the table of a held-out proof; `what` was left out."""
    if proof is None:
        return Text(f"no {what} could be left out: there is only one", style="dim")
    shown = table(
        "settings of", ">of the best found", ">worst", ">right", ">rules over it", ">measured",
        title=f"with {left_out(proof)}",
    )  # fmt: skip
    for row in proof["rows"]:
        over = proof["over"].get(row["name"])
        shown.add_row(
            row["name"],
            ratio_of(row["of_best"]),
            f"{row['worst']:.2f}",
            f"{row['right']} of {proof['studies']}",
            "" if over is None else ratio_of(over),
            f"{row['measured']} of {proof['studies']}",
        )
    return shown


def covered(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the evidence is from."""
    coverage = document["coverage"]
    for machine in coverage["machines"].values():
        yield f"{machine['cpu']}, {machine['machine']}: {n_studies(machine['studies'])}"
    for title, n in coverage["runtimes"].items():
        yield f"{title}: {n_studies(n)}"
    for mode, names in coverage["workloads"].items():
        yield f"{mode}: {', '.join(names)}"


def not_covered(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the rules do not speak of, and which studies were left out."""
    ranges = document["coverage"]["ranges"]
    if "cores" in ranges:
        yield f"machines with more than {ranges['cores'][1]:.0f} cores"
    for feature, words in (
        ("smt", "several hardware threads a core"),
        ("openmp", "OpenMP builds"),
        ("training", "training"),
    ):
        if feature in ranges and not ranges[feature][1]:
            yield words
    if "openmp" in ranges and ranges["openmp"][0]:
        yield "builds on the Eigen pool"
    if "sockets" in ranges and ranges["sockets"][1] < 2:
        yield "several sockets"
    if "oversubscribed" in ranges and ranges["oversubscribed"][1] <= 1:
        yield "CPU quotas"
    if not any(rule["group"] == "batch_size" for rule in document["rules"]):
        yield "batch sizes: no rule on them was found"
    for reason, names in document["made"]["excluded"].items():
        more = f" and {len(names) - _MOST_STUDIES} more" if len(names) > _MOST_STUDIES else ""
        yield f"left out, {reason}: {', '.join(names[:_MOST_STUDIES])}{more}"


def page(document: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Return everything, for a terminal."""
    proof = document["proof"]
    return [
        Text(heading(document), style="bold"),
        "",
        *rule_lines(document),
        "",
        held_out(proof.get("by_workload"), "workload"),
        "",
        held_out(proof.get("by_machine"), "machine"),
        *([held_out(proof["batch_by_workload"], "workload")] if proof.get("batch_by_workload") else []),
        Text(PAPER, style="dim"),
        "",
        Text("covered", style="bold"),
        *(Text(f"   {line}") for line in covered(document)),
        Text("not covered", style="bold"),
        *(Text(f"   {line}") for line in not_covered(document)),
    ]
