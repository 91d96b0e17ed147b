"""What pages are made of: cards and tables as HTML and as Markdown, and the frame of an HTML page.

A page needs nothing else: it is light and dark, and readable on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tuner.report.card import Card

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #8886}
table{border-collapse:collapse;font-size:.9em;display:block;overflow-x:auto}
th,td{padding:.25rem .7rem;border-bottom:1px solid #8884;text-align:left;vertical-align:top}
code,pre{background:#8882;font-size:.9em}pre{padding:.6rem .8rem;overflow-x:auto}
code{padding:.1rem .3rem;border-radius:.2rem}pre code{background:none;padding:0}
svg{max-width:100%;height:auto}li{margin:.15rem 0}
"""
STYLE = """
.tftune .answer{font-size:1.1rem;margin:.8rem 0 .2rem}
.tftune .answer b{padding:.1rem .5rem;border-radius:.3rem;color:#fff}
.tftune .better b{background:#00795a}.tftune .no-difference b{background:#20759e}
.tftune .undecided b{background:#8a6000}.tftune .worse b{background:#b34700}
.tftune .card td{padding:.25rem .7rem;border-bottom:1px solid #8884;text-align:left;vertical-align:top}
.tftune .card td:last-child{overflow-wrap:anywhere}
.tftune code{background:#8882;padding:.1rem .3rem;border-radius:.2rem;white-space:nowrap}
"""


def page(title: str, body: str, style: str = "") -> str:
    """Return a page with this body, an HTML fragment, and more `style` of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def card_html(card: Card) -> str:
    """Return the card as an HTML fragment, for a page that has `STYLE`."""
    parts = []
    for answer in card.answers:
        style = answer.code.value.replace(" ", "-")
        parts.append(f'<p class="answer {style}"><b>{answer.mark} {answer.word}</b> {escape(answer.text)}</p>')
        if answer.setting:
            parts.append(f"<p>{' '.join(f'<code>{escape(word)}</code>' for word in answer.setting)}</p>")
    rows = "".join(f"<tr><td>{escape(title)}</td><td>{escape(text)}</td></tr>" for title, text in card.rows)
    return f'<div class="tftune">{"".join(parts)}<table class="card">{rows}</table></div>'


def card_fragment(card: Card) -> str:
    """Return the card as HTML that brings its own style, for a notebook."""
    return f"<style>{STYLE}</style>{card_html(card)}"


def card_markdown(card: Card) -> list[str]:
    """Return the card as lines of Markdown."""
    lines = []
    for answer in card.answers:
        lines += [f"**{answer.mark} {answer.word}** {answer.text}", ""]
        lines += [f"`{'  '.join(answer.setting)}`", ""] if answer.setting else []
    return lines + [f"- **{title}**: {text}" if title else f"- {text}" for title, text in card.rows]


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as HTML."""
    head = f"<tr>{''.join(f'<th>{escape(each)}</th>' for each in heads)}</tr>" if heads else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, n_words: int = 1) -> list[str]:
    """Return a table as lines of Markdown, whose first columns are words and the others figures."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in [titles, *rows]]
    return [lines[0], f"|{' --- |' * n_words}{' ---: |' * (len(titles) - n_words)}", *lines[1:]]
