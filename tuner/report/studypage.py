"""A study as a page: one HTML file that needs nothing else, or Markdown for a pull request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from msgspec import to_builtins

from tuner.measure.objective import Objective
from tuner.quantity import duration_text, percent, ratio_text
from tuner.report import pages
from tuner.report.card import Card, notes
from tuner.report.terminal import device_lines, setting_text
from tuner.report.verdicts import conditions, speedup_text
from tuner.result.study import FinalsResult, StudyResult, VerdictResult
from tuner.result.wording import PLACES
from tuner.workload.workload import Execution, Kind

_TABS = """
.tabs{display:flex;flex-wrap:wrap;gap:.3rem}.tabs>input{position:absolute;opacity:0}
.tabs>label{order:1;padding:.2rem .7rem;border:1px solid #8886;border-radius:.3rem;cursor:pointer}
.tabs>input:checked+label{background:#20759e;color:#fff}.tabs>input:focus-visible+label{outline:2px solid}
.tabs>div{order:2;display:none;width:100%;position:relative}.tabs>input:checked+label+div{display:block}
.tabs button{position:absolute;right:.4rem;top:1.2rem}
"""
_COPY = "navigator.clipboard.writeText(this.nextSibling.textContent).then(()=>this.textContent=&quot;copied&quot;)"


def html(study: StudyResult, card: Card, snippets: Mapping[str, str], charts: Sequence[tuple[str, str]]) -> str:
    """Return the page: `snippets` by their format, and `charts` as SVG with their titles."""
    parts = [f"<h1>{escape(_title(study))}</h1>"]
    parts.append(pages.card_html(card))
    if snippets:
        parts += ["<h2>What to set</h2>", _tabs(snippets)]
    for title, svg in charts:
        parts += [f"<h2>{title}</h2>", svg]
    for title, heads, rows in _tables(study):
        parts += [f"<h2>{title}</h2>", pages.html_table(heads, rows)]
    raw = json.dumps(to_builtins(study), indent=1)
    parts.append(f"<details><summary>All of it as JSON</summary><pre>{escape(raw)}</pre></details>")
    return pages.page(_title(study), "\n".join(parts), _TABS + pages.STYLE)


def _tabs(snippets: Mapping[str, str]) -> str:
    """Return snippets as tabs, one shown at a time, each with a button that copies it; they need no script to show."""
    parts = []
    for number, (name, snippet) in enumerate(snippets.items()):
        checked = "" if number else " checked"
        parts.append(
            f'<input type="radio" name="snippet" id="tab{number}"{checked}><label for="tab{number}">{name}</label>'
            f'<div><button type="button" onclick="{_COPY}">copy</button><pre>{escape(snippet)}</pre></div>'
        )
    return f'<div class="tabs">{"".join(parts)}</div>'


def markdown(study: StudyResult, card: Card, snippets: Mapping[str, str]) -> str:
    """Return the page without its charts, as text."""
    lines = [f"# {_title(study)}", ""]
    lines += pages.card_markdown(card)
    for name, snippet in snippets.items():
        lines += ["", f"{name}:", "", "```", snippet.rstrip(), "```"]
    for title, heads, rows in _tables(study):
        lines += ["", f"## {title}", "", *pages.markdown_table(heads, rows, n_words=len(heads))]
    return "\n".join(lines) + "\n"


def _title(study: StudyResult) -> str:
    return f"{study.workload.name}, {study.workload.mode}: study {study.study}"


def _tables(study: StudyResult) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Yield the title, the headings and the rows of each table."""
    heads = ("against", "speed-up [interval]", "verdict")
    for of, answer in study.answers.items():
        title = f"Finals {PLACES[of]}" if len(study.answers) > 1 else "Finals"
        yield title, heads, _finals_rows(answer.finals, answer.verdicts)
    rows = [
        (
            str(trial.number),
            setting_text(trial.setting),
            ratio_text(trial.ratio, trial.low, trial.high),
            ", ".join([*trial.baselines, *(["stopped early"] if trial.pruned else []), trial.message]).strip(", "),
        )
        for trial in study.history
    ]
    yield "All trials", ("#", "setting", "ratio [95 %]", ""), rows
    knobs = [
        (name, knob.set_by or str(knob.variable), ", ".join(map(str, knob.values)) if knob.active else knob.reason)
        for name, knob in study.knobs.items()
    ]
    noise_rows = list(_noise_rows(study))
    if noise_rows:
        yield "Noise and the machine", ("", ""), noise_rows
    yield "Knobs", ("knob", "set by", "values, or why it has no effect"), knobs
    yield "How to reproduce it", ("", ""), list(_origin(study))


def _finals_rows(held: FinalsResult, verdicts: Mapping[str, VerdictResult]) -> list[tuple[str, str, str]]:
    first_names = [name for name in held.names if name in verdicts]
    return [
        (" = ".join(held.names[name]), speedup_text(verdicts[name]), str(verdicts[name].code)) for name in first_names
    ]


def _noise_rows(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield how much equal settings scatter, and what else the machine did meanwhile."""
    if study.noise is not None:
        noise = study.noise
        yield "a block of four slices", f"±{percent(noise.block_sd)}"
        if noise.process_sd > 0:
            yield "between processes of one setting", f"±{percent(noise.process_sd)}"
        yield "drift of the machine", f"±{percent(noise.drift)}, common to both processes of a pair"
        yield "noise floor of the finals", percent(noise.floor)
    if study.conditions is not None:
        yield "the machine", str(conditions(study.conditions))


def _origin(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield what is needed to measure a study again, and how it went."""
    machine, workload = study.machine, study.workload
    yield "machine", f"{machine.cpu_model}, CPUs {machine.affinity} of {machine.online_cpus}, id {machine.id}"
    for number, line in enumerate(device_lines(study.device) if study.device["name"] != "cpu" else ()):
        yield "" if number else "device", line
    for number, line in enumerate(study.framework.build_lines(study.runtime)):
        yield "" if number else "build", line
    yield "command", _command(study)
    yield "workload", f"fingerprint {workload.fingerprint}, executed as {workload.execution}"
    if study.noise is not None:
        yield "noise", f"{percent(study.noise.block_sd)} per block, noise floor {percent(study.noise.floor)}"
    if study.wall_s is not None:
        yield "duration", f"{duration_text(study.wall_s)}, {duration_text(study.measured_s)} of it measuring"
    yield from notes(study.warnings)


def _command(study: StudyResult) -> str:
    """Return the search that a study was, as far as it tells."""
    workload, limits = study.workload, study.limits
    if study.planned is not None:
        return f"tftune suite --plan 15m --workloads {shlex.quote(workload.name)}"
    is_command = workload.kind == Kind.COMMAND
    words = ["tftune search", *([] if is_command else [shlex.quote(workload.name), f"--mode {workload.mode}"])]
    words += [f"--framework {study.framework.name} --space {study.space}"]
    words += [f"--execution {workload.execution}"] if workload.execution is not Execution.GRAPH else []
    words += [f"--device {study.device['name']}"] if study.device["name"] != "cpu" else []
    words += [f"--feed {study.device['feed']}"] if study.device.get("feed") == "device" else []
    words += [f"--batch-size {','.join(map(str, study.batch_sizes))}"] if study.batch_sizes else []
    words += [f"--set {shlex.quote(f'{name}={value}')}" for name, value in (study.pins or {}).items()]
    asked = (Objective.LATENCY, Objective.ENERGY, Objective.CAPACITY)
    words += [f"--objective {study.objective}"] if study.objective in asked else []
    words += [f"--rate {workload.rate:g}"] if workload.rate else []
    words += [f"--max-p99 {1000 * limits.p99_s:g}"] if limits.p99_s is not None else []
    words += [f"--max-memory {limits.memory_bytes // 2**20}MiB"] if limits.memory_bytes is not None else []
    words += ["--numerics may-change"] if study.may_change_numerics else []
    words += [f"--max-power {limits.power_w:g}"] if limits.power_w is not None else []
    words += [f"--param {shlex.quote(f'{name}={value}')}" for name, value in workload.params.items()]
    words += [] if study.seed is None else [f"--seed {study.seed}"]
    return " ".join([*words, *(["--metric-regex …", "--", workload.description] if is_command else [])])
