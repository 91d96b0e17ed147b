"""Rules as a page for a wiki or a pull request: Markdown, and HTML that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from tuner.report import pages
from tuner.report import rules as words
from tuner.report.emit import argument_note, processes_note
from tuner.report.rulecores import title_by_cores
from tuner.result.recommendation import kind_text
from tuner.rules.proof import HeldOut
from tuner.rules.recipe import BATCH, LATENCY
from tuner.rules.rule import KEEP, Example, RuleSet
from tuner.space.deployment import Deployment

if TYPE_CHECKING:
    from markdown_it.token import Token

SPEEDUPS, LOSSES = "speedups", "losses"
_PICTURES = {
    SPEEDUPS: "Speed-up by tuning over each baseline",
    LOSSES: "Performance of the rules on held-out workloads",
}


def markdown(rules: RuleSet, pictures: Mapping[str, str]) -> str:
    """Return the page; of the `pictures` that there are, the files beside it are said."""
    return "\n".join(_lines(rules, pictures)) + "\n"


def html(rules: RuleSet, drawn: Mapping[str, str]) -> str:
    """Return the page as one file; `drawn` are the pictures by name, as SVG."""
    return pages.page("Parallelism rules", _body(markdown(rules, {name: name for name in drawn}), drawn))


def fragment(rules: RuleSet) -> str:
    """Return what to set, and what was never measured, as HTML for a notebook."""
    return _body(brief(rules), {})


def brief(rules: RuleSet) -> str:
    """Return what to set, and what was never measured, as Markdown."""
    unknown = [f"- *Never measured*: {line}" for line in words.never_measured(rules)]
    return "\n".join([f"**{words.heading(rules)}**", "", *_by_cores(rules), *_summary(rules), *unknown])


def _body(text: str, drawn: Mapping[str, str]) -> str:
    """Return Markdown as HTML, with the pictures that it names."""
    from markdown_it import MarkdownIt

    def image(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
        return drawn.get(str(tokens[index].attrs["src"]), escape(tokens[index].content))

    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer.add_render_rule("image", image)
    return str(renderer.render(text))


def _lines(rules: RuleSet, pictures: Mapping[str, str]) -> Iterator[str]:
    provenance = rules.provenance
    yield from ("# Parallelism rules for TensorFlow", "")
    yield f"{words.heading(rules)}; learned by tftune {provenance.tftune} on {provenance.created[:10]}."
    yield ""
    yield from _by_cores(rules)
    yield from ("**Never measured**, each by itself (cells above are predicted there, or unknown):", "")
    yield from (f"- {line}" for line in words.never_measured(rules))
    yield from ("", "## What to set", "")
    yield from _summary(rules)
    yield from ("## What it is expected to gain", "")
    for name, group in rules.groups.items():
        if group.headline:
            yield from (f"{words.TITLES[name].capitalize()}, {words.HEADLINE}:", "")
            yield from _rows(words.HEADLINES, words.headline_rows(group))
    yield from (f"{words.policy_text(rules)}.", "")
    yield from ("## The rules", "", f"{words.FOLLOWED.capitalize()}.", "")
    for name in KEEP:
        yield from _group(rules, name)
    yield from ("## Held-out tests", "")
    yield (
        "Each row tests rules on workloads, machines or shapes that they were not learned from. Figures are geometric "
        "means over workloads, with 95 % intervals."
    )
    yield "If a study did not measure a setting, its rate is predicted from the study's other measurements."
    yield "*rules* applies the rules everywhere; *policy* applies them only if the remaining studies show a gain."
    yield from (
        "If no remaining study has such a kind of machine and build, the policy keeps the default (1.000).",
        "",
    )
    for title, proof in words.proofs(rules):
        yield from _table(title, proof)
    yield from (f"{words.RECALLED}.", f"{words.PAPER}.", "")
    for name, file in pictures.items():
        yield from (f"![{_PICTURES[name]}]({quote(file)})", "")
    yield from ("## Coverage", "")
    yield from (f"- {line}" for line in words.covered(rules))
    yield from ("", "## Not covered", "")
    yield from (f"- {line}" for line in words.not_covered(rules))


def _by_cores(rules: RuleSet) -> Iterator[str]:
    """Yield what to set by the number of cores, and how that is known."""
    title = title_by_cores(rules)
    yield from (f"{title[0].upper()}{title[1:]}:", "")
    yield from _rows(words.CORE_TITLES, words.core_rows(rules), n_words=len(words.CORE_TITLES))


def _summary(rules: RuleSet) -> Iterator[str]:
    """Yield what a team has to know: the situations, what to set in each, and what the words mean."""
    for group in words.summary(rules):
        if not group.rows:
            yield from (f"{group.title.capitalize()}: {group.no_rule}.", "")
            continue
        yield from (f"{group.title.capitalize()}:", "")
        yield from _rows(group.columns, group.rows, n_words=len(group.columns))
        yield from _rows(
            words.SET_COLUMNS, ((sets, f"`{name}`", value) for sets, name, value in words.set_cells(group)), n_words=3
        )
        yield from (f"- {note}" for note in (*words.set_notes(group), *group.notes))
        yield ""
    yield from (f"- *{title}*: {text}" for title, text in words.notes(rules))
    yield ""


def _group(rules: RuleSet, name: str) -> Iterator[str]:
    """Yield the rules of a group with their evidence, and what each sets in one of its studies."""
    group = rules.groups.get(name)
    where = "At" if name == LATENCY else "On"
    yield from (f"### {where} {'the ' if name in (BATCH, LATENCY) else ''}{words.TITLES[name]}", "")
    if group is None:
        yield from (f"{words.NOT_KNOWN[name].capitalize()}.", "")
        return
    for statement in words.statements(name, group):
        yield from (f"**{statement.text}**", "")
        rule, evidence = statement.rule, statement.evidence
        if rule is not None and rule.advice.strata:
            yield from _rows(words.STRATA, words.stratum_rows(rule.advice))
        yield from (f"- {line.text}" for line in words.evidence_lines(evidence)) if evidence is not None else ()
        if rule is not None and rule.example is not None:
            yield from _snippet(rule.example)
        yield ""
    reason = words.why_none(rules, group)
    if reason:
        yield from (f"{reason.capitalize()}.", "")


def _snippet(example: Example) -> Iterator[str]:
    if not (example.env or example.arguments or example.processes > 1):
        return
    situation = example.situation
    yield from ("", f"For example {situation.workload} {situation.mode}, {kind_text(situation)}:", "", "```sh")
    if example.processes > 1:
        yield f"# {processes_note(Deployment(processes=example.processes))}"
    yield from (f"# {argument_note(name, value)}" for name, value in example.arguments.items())
    yield from (f"export {name}={value}" for name, value in example.env.items())
    yield "```"


def _table(title: str, proof: HeldOut | None) -> Iterator[str]:
    yield from (f"{title[0].upper()}{title[1:]}.", "")
    if proof is None:
        return
    yield from _rows(words.HELD_OUT, words.held_out_rows(proof))
    yield from _rows(words.over_titles(proof), words.over_rows(proof))


def _rows(titles: Sequence[str], rows: Iterable[Sequence[str]], *, n_words: int = 1) -> Iterator[str]:
    """Yield a table, and the empty line after it."""
    yield from (*pages.markdown_table(titles, rows, n_words=n_words), "")
