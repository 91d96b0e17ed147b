"""The matrix of a storage as a page: models by machine types, what to set on each, and what has to be measured again.

The content of a study may come from another machine. All of it is treated as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from html import escape

from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.identity import digest
from tuner.job.matrix import Cell, MachineType, Matrix, Row
from tuner.job.selection import time_of
from tuner.paths import file_stem
from tuner.plain import printable
from tuner.quantity import age_text, plural
from tuner.report import pages
from tuner.report.card import Answer
from tuner.report.terminal import device_lines
from tuner.result.document import other_values
from tuner.result.study import AT_SAME_LATENCY, ONE, AnswerResult, StudyResult, nodes_of
from tuner.result.wording import cores_text, range_text, speed_up
from tuner.stats.equivalence import VerdictCode

INDEX = "index"
"""The name of the page, beside the pages of the studies."""
_MISSING = "not measured"
_DAMAGED = "cannot be read"
_STYLE = """
body{max-width:90rem}
.matrix th,.matrix td{min-width:12rem;overflow-wrap:anywhere}
.matrix td{border-left:.3rem solid #8884}
.matrix th[scope=row]{min-width:9rem;position:sticky;left:0;background:Canvas}
.matrix small{display:block;font-weight:400;opacity:.8}
.matrix td p{margin:0 0 .3rem}
.matrix .better{border-left-color:#00795a}.matrix .no-difference{border-left-color:#20759e}
.matrix .undecided{border-left-color:#8a6000}
.matrix .missing{background:#8883;opacity:.75}
.matrix .stale{background:#b347001f}
.matrix mark{background:#b34700;color:#fff;padding:.05rem .4rem;border-radius:.3rem}
@media(max-width:40rem){
.matrix,.matrix tbody,.matrix tr,.matrix th,.matrix td{display:block;min-width:0}
.matrix thead{display:none}
.matrix th[scope=row]{position:static;margin-top:1.2rem;font-size:1.1rem}
.matrix td::before{content:attr(data-type);display:block;font-size:.85em;opacity:.8}
}
"""


def html(matrix: Matrix, studies: Mapping[str, StudyResult], now: datetime) -> str:
    """Return the page; `studies` are the studies of the cells by name, each of which has a page beside this one."""
    titles = _titles(matrix)
    heads = "".join(f"<th>{escape(title)}<small>{escape(rest)}</small></th>" for title, rest in titles)
    rows = []
    for row in matrix.rows:
        name, details = _row_words(row)
        cells = "".join(
            f'<td class="{kind}" data-type="{escape("; ".join(title))}">{shown}</td>'
            for column, title in zip(matrix.columns, titles, strict=True)
            for kind, shown in [_html_cell(matrix, row, column, studies, now)]
        )
        rows.append(f'<tr><th scope="row">{escape(name)}<small>{escape(details)}</small></th>{cells}</tr>')
    body = [
        f"<h1>{_TITLE}</h1>",
        f"<p>{escape(_summary(matrix, now))}</p>",
        f'<table class="matrix"><thead><tr><th>model</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>',
        "<ul>",
        *(f"<li>{escape(line)}</li>" for line in _lines(matrix)),
        "</ul>",
    ]
    return harmless(pages.page(_TITLE, "\n".join(body), pages.STYLE + _STYLE))


def markdown(matrix: Matrix, studies: Mapping[str, StudyResult], now: datetime) -> str:
    """Return the matrix as text, without links."""
    titles = [_plain(f"{title} ({rest})") for title, rest in _titles(matrix)]
    rows = [
        [
            _plain(" ".join(_row_words(row)).strip()),
            *(_markdown_cell(matrix, row, column, studies, now) for column in matrix.columns),
        ]
        for row in matrix.rows
    ]
    table = pages.markdown_table(["model", *titles], rows, n_words=1 + len(titles))
    lines = [f"# {_TITLE}", "", _summary(matrix, now), "", *table, "", *(f"- {_plain(n)}" for n in _lines(matrix))]
    return harmless("\n".join(lines)) + "\n"


def harmless(text: str) -> str:
    """Return text without control characters, and without halves of characters, which no file could hold."""
    return printable(text).encode(errors="replace").decode()


def page_name(study: str) -> str:
    """Return the name of a study's page, which no other study's has, whatever its name holds."""
    stem = file_stem(study)
    return f"{stem}.html" if stem == study and stem.lower() != INDEX else f"{stem}-{digest(study)}.html"


_TITLE = "What to set on which machine"


def _summary(matrix: Matrix, now: datetime) -> str:
    n_stale = sum(bool(cell.stale) for cell in matrix.cells.values())
    n_missing = len(matrix.rows) * len(matrix.columns) - len(matrix.cells)
    return (
        f"{plural(len(matrix.rows), 'model')} on {plural(len(matrix.columns), 'machine type')}: "
        f"{len(matrix.cells)} measured, {n_stale} stale, {n_missing} {_MISSING}. {now:%Y-%m-%d %H:%M} UTC."
    )


def _lines(matrix: Matrix) -> Iterator[str]:
    """Yield what the signs mean, what to do next, and what is left open."""
    yield "A ratio is the speed-up over the default, pooled over sessions, with its interval."
    yield "✔ better, = keep, ? undecided."
    if any(cell.stale for cell in matrix.cells.values()):
        yield "Stale: something has changed since the study was measured. tftune suite --stale measures it again there."
    yield from matrix.notes


# ---- rows and columns -----------------------------------------------------------------------------------------------


def _row_words(row: Row) -> tuple[str, str]:
    """Return the name of a model, and the rest of what tells rows apart."""
    sizes = f"batch sizes {', '.join(map(str, row.batch_sizes))}" if row.batch_sizes else ""
    framework = row.framework if row.framework != registry.find(registry.DEFAULT).title else ""
    return row.workload, ", ".join(filter(None, [row.mode, framework, row.options, sizes]))


def _titles(matrix: Matrix) -> list[tuple[str, str]]:
    """Return the title of each machine type, and the rest of what tells them apart."""
    titles = []
    for column in matrix.columns:
        machine = column.machine
        rest = [cores_text(machine), column.host.removeprefix(f"{machine.cpu_model}, ")]
        titles.append((machine.cpu_model, "; ".join([*_device_words(column), *rest])))
    return titles


def _device_words(column: MachineType) -> list[str]:
    if column.facts["name"] == "cpu":
        return []
    try:
        return device_lines(column.facts)[:1]
    except (BadInputError, KeyError, TypeError, ValueError):  # a device that is not known here
        return [str(column.facts["name"])]


def _builds(matrix: Matrix, row: Row) -> dict[str, str]:
    """Return what tells the builds of a framework apart, by their lines; nothing if there is one."""
    lines = {cell.build for (other, _), cell in matrix.cells.items() if other.framework == row.framework}
    n_most = max(line.count(", ") for line in lines) + 1
    short = ({line: ", ".join(line.split(", ")[:n]) for line in lines} for n in range(1, n_most + 1))
    return next(each for each in short if len({*each.values()}) == len(lines)) if len(lines) > 1 else {}


# ---- cells ----------------------------------------------------------------------------------------------------------


def _answers(study: StudyResult) -> Iterator[Answer]:
    """Yield what to set, by the answer on one process, then by others that were proven better."""
    for of, answer in study.answers.items():
        advice, gain = answer.recommended, answer.recommended.gain
        is_better = gain is not None and gain.code is VerdictCode.BETTER
        if is_better and gain is not None:
            processes = advice.deployment.processes
            several = f"{processes} processes side by side" if processes > 1 else ""
            text = ", ".join(filter(None, [several, of if of == AT_SAME_LATENCY else ""]))
            words = tuple(f"{name}={value}" for name, value in other_values(advice.setting, study).items())
            yield Answer(code=VerdictCode.BETTER, word=speed_up(gain), text=text, setting=words)
        elif of == ONE:
            yield _keep(study, answer)
    if not study.answers:
        yield Answer(code=VerdictCode.UNDECIDED, word="no finals", text="")


def _keep(study: StudyResult, answer: AnswerResult) -> Answer:
    """Return that the default is kept, and what is known of the best other setting."""
    against = answer.recommended.together or answer.verdicts.get(study.default)
    if against is None or against.low is None or against.code is VerdictCode.UNDECIDED:
        code, word = VerdictCode.UNDECIDED, "keep the default for now"
    else:
        code, word = VerdictCode.NO_DIFFERENCE, "keep the default"
    is_known = against is not None and against.low is not None
    text = f"the best other setting: {range_text(against)}" if against is not None and is_known else ""
    return Answer(code=code, word=word, text=text)


def _evidence(cell: Cell, study: StudyResult, now: datetime) -> str:
    """Return on how many sessions and nodes an answer rests, and how old the newest is."""
    stored = cell.stored
    sessions = 0 if study.recommended is None else len(study.recommended.sessions)
    text = plural(sessions or 1 + len(stored.earlier_finals) + len(stored.checks), "session")
    nodes = nodes_of(study) or cell.nodes
    text += f" on {plural(len(nodes), 'node')}" if nodes else ""
    touched = time_of(stored.touched)
    return f"{text}, {'of unknown age' if touched is None else age_text((now - touched).total_seconds())}"


def _html_cell(
    matrix: Matrix, row: Row, column: MachineType, studies: Mapping[str, StudyResult], now: datetime
) -> tuple[str, str]:
    """Return the classes of a cell, and what it shows."""
    cell = matrix.cells.get((row, column))
    study = None if cell is None else studies.get(cell.record.name)
    if cell is None or study is None:
        return "missing", _MISSING if cell is None else _DAMAGED
    answers = [*_answers(study)]
    parts = []
    for number, answer in enumerate(answers):
        word = f"{answer.mark} {escape(answer.word)}"
        linked = word if number else f'<a href="{escape(page_name(study.study))}">{word}</a>'
        setting = " ".join(f"<code>{escape(each)}</code>" for each in answer.setting)
        parts.append(f"<p><b>{linked}</b> {setting}<small>{escape(answer.text)}</small></p>")
    small = [escape(_evidence(cell, study, now)), escape(_builds(matrix, row).get(cell.build, ""))]
    small += [f"<mark>stale</mark> {escape(', '.join(cell.stale))}"] if cell.stale else []
    parts += [f"<small>{text}</small>" for text in small if text]
    return answers[0].code.value.replace(" ", "-") + (" stale" if cell.stale else ""), "".join(parts)


def _markdown_cell(
    matrix: Matrix, row: Row, column: MachineType, studies: Mapping[str, StudyResult], now: datetime
) -> str:
    cell = matrix.cells.get((row, column))
    study = None if cell is None else studies.get(cell.record.name)
    if cell is None or study is None:
        return _MISSING if cell is None else _DAMAGED
    parts = []
    for answer in _answers(study):
        setting = " ".join(answer.setting).replace("`", "'").replace("\n", " ")
        words = [f"**{answer.mark} {answer.word}**", f"`{setting}`" if setting else "", _plain(answer.text)]
        parts.append(" ".join(filter(None, words)))
    parts += [_evidence(cell, study, now), _plain(_builds(matrix, row).get(cell.build, ""))]
    parts += [f"**stale**: {_plain(', '.join(cell.stale))}"] if cell.stale else []
    return "; ".join(filter(None, parts))


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return re.sub(r"([\\`*<>\[\]])", r"\\\1", " ".join(text.split()))
