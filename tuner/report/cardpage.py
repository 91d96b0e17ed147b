"""A card as HTML, for a page or a notebook, and as Markdown, for a pull request or a job's summary."""

from __future__ import annotations

from html import escape

from tuner.report.card import Card

STYLE = """
.tftune .answer{font-size:1.1rem;margin:.8rem 0 .2rem}
.tftune .answer b{padding:.1rem .5rem;border-radius:.3rem;color:#fff}
.tftune .better b{background:#00795a}.tftune .no-difference b{background:#20759e}
.tftune .undecided b{background:#8a6000}.tftune .worse b{background:#b34700}
.tftune .card td{padding:.25rem .7rem;border-bottom:1px solid #8884;text-align:left;vertical-align:top}
.tftune code{background:#8882;padding:.1rem .3rem;border-radius:.2rem;white-space:nowrap}
"""


def html(card: Card) -> str:
    """Return the card as an HTML fragment, for a page that has `STYLE`."""
    parts = []
    for answer in card.answers:
        style = answer.code.value.replace(" ", "-")
        parts.append(f'<p class="answer {style}"><b>{answer.mark} {answer.word}</b> {escape(answer.text)}</p>')
        if answer.setting:
            parts.append(f"<p>{' '.join(f'<code>{escape(word)}</code>' for word in answer.setting)}</p>")
    rows = "".join(f"<tr><td>{escape(title)}</td><td>{escape(text)}</td></tr>" for title, text in card.rows)
    return f'<div class="tftune">{"".join(parts)}<table class="card">{rows}</table></div>'


def fragment(card: Card) -> str:
    """Return the card as HTML that brings its own style, for a notebook."""
    return f"<style>{STYLE}</style>{html(card)}"


def markdown(card: Card) -> list[str]:
    """Return the card as lines of Markdown."""
    lines = []
    for answer in card.answers:
        lines += [f"**{answer.mark} {answer.word}** {answer.text}", ""]
        lines += [f"`{'  '.join(answer.setting)}`", ""] if answer.setting else []
    return lines + [f"- **{title}**: {text}" if title else f"- {text}" for title, text in card.rows]
