"""HTML pages that need nothing else: light and dark, and readable on a phone."""

from __future__ import annotations

from html import escape

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #8886}
table{border-collapse:collapse;font-size:.9em;display:block;overflow-x:auto}
th,td{padding:.25rem .7rem;border-bottom:1px solid #8884;text-align:left;vertical-align:top}
code,pre{background:#8882;font-size:.9em}pre{padding:.6rem .8rem;overflow-x:auto}
code{padding:.1rem .3rem;border-radius:.2rem}pre code{background:none;padding:0}
svg{max-width:100%;height:auto}li{margin:.15rem 0}
@media(prefers-color-scheme:dark){svg{filter:invert(1) hue-rotate(180deg)}}
"""


def page(title: str, body: str, style: str = "") -> str:
    """Return a page with this body, an HTML fragment, and more `style` of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
