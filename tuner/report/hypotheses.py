"""Hypotheses for people: machines from small to large, what rules may hold on them, and what would test each."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from tuner.machine.spec import parse_spec
from tuner.quantity import plural
from tuner.report.layout import table
from tuner.report.model import machine_text
from tuner.rules.hypothesis import TOLD_APART, HypothesesResult, Hypothesis, MachineRow
from tuner.rules.recipe import FRAMEWORK
from tuner.space.term import OPENMP

TITLE = "simulated, not measured"
_NAMED = {each.name: each.whose for each in FRAMEWORK.baselines if each.whose}
_NAMED |= {each.name: each.whose for each in FRAMEWORK.width_guides}


def rendered(result: HypothesesResult) -> Sequence[RenderableType]:
    """Return all of it for a terminal."""
    head = Text(
        f"{TITLE}: {plural(len(result.workloads), 'workload')} ({', '.join(result.workloads)}), profiled on one "
        "machine and simulated on others. Ratios are to TensorFlow's defaults on the same machine, unless stated "
        "otherwise, and are geometric means over workloads."
    )
    parts: list[RenderableType] = [head, ""]
    for pool in dict.fromkeys(row.pool for row in result.machines):
        parts += [_machines([row for row in result.machines if row.pool == pool], pool), ""]
    parts += [Text(line) for line in answers(result)]
    parts.append("")
    if not result.rules:
        parts.append(Text(why_no_rule(result)))
    for number, rule in enumerate(result.rules, start=1):
        parts += [Text(f"{number}. {line}" if i == 0 else f"   {line}") for i, line in enumerate(rule_lines(rule))]
    return parts


def _machines(rows: Sequence[MachineRow], pool: str) -> RenderableType:
    spinning = [">spinning / sleeping teams"] if pool == OPENMP else []
    drawn = table(
        "machine",
        ">one operator at a time",
        ">Intel's",
        ">Wang et al.'s",
        ">best",
        ">5 % to gain",
        *spinning,
        title="OpenMP build" if pool == OPENMP else "stock build",
    )
    for row in rows:
        cells = [f"{value:.2f}×" for value in (row.one_operator, row.intel, row.wang, row.best)]
        extra = [] if row.spinning is None else [f"{row.spinning:.2f}×"]
        drawn.add_row(row.machine, *cells, f"{row.helped} of {row.workloads}", *extra)
    return drawn


def answers(result: HypothesesResult) -> Iterator[str]:
    """Yield what the machines say of the questions that people have."""
    for pool in dict.fromkeys(row.pool for row in result.machines):
        rows = [row for row in result.machines if row.pool == pool]
        build = "OpenMP build" if pool == OPENMP else "stock build"
        helped = [row for row in rows if 2 * row.helped >= row.workloads]
        where = "; ".join(place(row.machine) for row in helped) or "on none of these machines"
        yield f"{build}: where is there 5 % to gain for half of the workloads? {where}"
        widest = max(rows, key=lambda row: row.most_by_width[1])
        workload, gain = widest.most_by_width
        yield (
            f"{build}: does it help to run as many operators side by side as the graph is wide (Wang et al.)? At most "
            f"{gain:.2f}× one operator at a time: {workload} {place(widest.machine)}"
        )
        spun = [row for row in rows if row.spinning is not None]
        if spun:
            worst = min(spun, key=lambda row: row.spinning or 1.0)
            yield (
                f"{build}: should threads spin (KMP_BLOCKTIME=200) with several teams? In the worst case that reaches "
                f"{worst.spinning:.2f}× of KMP_BLOCKTIME=0, {place(worst.machine)}, over workloads two operators wide"
            )


def place(spec: str) -> str:
    """Return where a machine in words is, as part of a sentence."""
    machine = parse_spec(spec).machine()
    return f"on {machine_text(machine)}"


def rule_lines(rule: Hypothesis) -> Iterator[str]:
    """Yield a hypothesis, what it is predicted to gain, and what would test it."""
    yield f"{rule.if_}: {rule.then}"
    over = ", ".join(f"{rule.over[name]:.2f}× {words}" for name, words in _NAMED.items() if name in rule.over)
    n_studies = plural(rule.studies, "simulated study", "simulated studies")
    yield f"predicted: {over} ({plural(len(rule.workloads), 'workload')}, {n_studies})"
    test = rule.test
    words = ["tftune", "compare", test.workload, "--mode", test.mode]
    words += [word for name, value in test.params.items() for word in ("--param", f"{name}={value}")]
    setting = ",".join(f"{name}={value}" for name, value in test.b.items())
    words += ["--a", test.a, "--b", setting]
    build = " with an OpenMP build" if test.pool == OPENMP else ""
    yield f"test, {place(test.machine)}{build}: {shlex.join(words)}"
    if abs(math.log(test.ratio)) < TOLD_APART:
        yield f"expected: {test.ratio:.2f}×, too near to 1 for such a comparison"
    elif test.ratio > 1:
        least = math.exp(TOLD_APART)
        yield f"expected: b at {test.ratio:.2f}× the speed of a; the hypothesis is wrong if it is below {least:g}×"
    else:
        yield f"expected: b at {test.ratio:.2f}× the speed of a: that guide is predicted to beat the rule there"


def why_no_rule(result: HypothesesResult) -> str:
    """Return why no rule is among the hypotheses."""
    n = len(result.workloads)
    if n < result.least_workloads:
        return (
            f"no rule is learned from fewer than {result.least_workloads} workloads, and {n} are profiled: profile "
            "others with tftune predict WORKLOAD, about a minute each (tftune workloads lists them)"
        )
    return "no rule gains more than chance alone would give: there is nothing to test"
