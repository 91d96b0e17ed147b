"""Rules as a page for a wiki or a pull request: Markdown, and HTML that is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.report.rules import (
    PAPER,
    covered,
    evidence_lines,
    heading,
    left_out,
    not_covered,
    ratio_of,
    sentence,
)

SPEEDUPS, LOSSES = "rules-speedups.svg", "rules-losses.svg"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-size:.9em}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}"
    "th:first-child,td:first-child{text-align:left}"
    "code,pre{background:#f5f5f5;font-size:.9em}pre{padding:.6rem .8rem;overflow:auto}"
    "svg{max-width:100%;height:auto}li{margin:.15rem 0}h2{margin-top:2rem}"
)


def markdown(document: Mapping[str, Any], *, pictures: bool) -> str:
    """Return the page; `pictures` are linked to as files beside it."""
    return "\n".join(_lines(document, pictures=pictures)) + "\n"


def html(document: Mapping[str, Any], drawn: Mapping[str, str]) -> str:
    """Return the page as one file; `drawn` are the pictures by name, as SVG."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown(document, pictures=bool(drawn)))
    for name, svg in drawn.items():
        start = body.index(f'<img src="{name}"')
        end = body.index(">", start) + 1
        body = body[:start] + svg + body[end:]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Parallelism rules</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _lines(document: Mapping[str, Any], *, pictures: bool) -> Iterator[str]:
    made = document["made"]
    yield from ("# Parallelism rules for TensorFlow", "")
    yield f"{heading(document)}; distilled by tftune {made['tftune']} on {made['created'][:10]}."
    yield from ("", "## The rules", "")
    if document["rules"]:
        yield from ("Of those on threads, and of those on the batch size, the first that applies is followed.", "")
    for number, rule in enumerate(document["rules"], start=1):
        yield from (f"### {number}. {sentence(rule, document['rules'][: number - 1])}", "")
        yield from (f"- {line}" for line in evidence_lines(rule["evidence"]))
        yield from _snippet(rule["evidence"].get("example"))
        yield ""
    if document["otherwise"]["studies"]:
        title = "Otherwise keep TensorFlow's defaults" if document["rules"] else "No rule: keep TensorFlow's defaults"
        yield from (f"### {title}", "", *(f"- {line}" for line in evidence_lines(document["otherwise"])), "")
    yield from ("## On what they have not seen", "")
    proof = document["proof"]
    for what in ("workload", "machine"):
        yield from _table(proof.get(f"by_{what}"), what)
    if proof.get("batch_by_workload"):
        yield from ("Batch sizes and threads together, against the best found at any batch size:", "")
        yield from _table(proof["batch_by_workload"], "workload")
    yield from (f"{PAPER}.", "")
    if pictures:
        yield from (f"![what tuning gains over each baseline]({SPEEDUPS})", "")
        yield from (f"![what the rules reach where they were held out]({LOSSES})", "")
    yield from ("## What was covered", "")
    yield from (f"- {line}" for line in covered(document))
    yield from ("", "## What was not", "")
    yield from (f"- {line}" for line in not_covered(document))


def _snippet(example: Mapping[str, Any] | None) -> Iterator[str]:
    if example is None or not example["env"]:
        return
    yield from ("", f"For example {example['workload']} {example['mode']} on {example['machine']}:", "", "```sh")
    yield from (f"export {name}={value}" for name, value in example["env"].items())
    yield "```"


def _table(proof: Mapping[str, Any] | None, what: str) -> Iterator[str]:
    if proof is None:
        yield from (f"No {what} could be left out: there is only one.", "")
        return
    yield f"With {left_out(proof)}; what was left out met the rules that the rest gave. Geometric means over workloads,"
    yield "with 95 % intervals. What was not measured itself is told by the study's other measurements."
    yield from ("", "| settings of | of the best found | worst | not told apart from it | rules over it | measured |")
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in proof["rows"]:
        over = proof["over"].get(row["name"])
        cells = (
            row["name"],
            ratio_of(row["of_best"]),
            f"{row['worst']:.2f}",
            f"{row['right']} of {proof['studies']}",
            "" if over is None else ratio_of(over),
            f"{row['measured']} of {proof['studies']}",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
