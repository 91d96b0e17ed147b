"""Draw docs/pair.svg: two processes that take turns in slices while the machine drifts.

python docs/pair.py
"""

from __future__ import annotations

from pathlib import Path

WIDTH, HEIGHT, SLICE, TOP = 640, 250, 70, 60
ORDER = "ABBABAAB"
COLOURS = {"A": "#20759e", "B": "#b34700"}
NAMES = {"A": "reference (A)", "B": "candidate (B)"}


def drift(i: int) -> float:
    """Return how much slower the machine is in slice i than in the first, in pixels."""
    return 5.0 * i


def picture() -> str:
    """Return the picture as SVG; its text is readable on light and dark pages."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="A pair of processes that take turns">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fff"/>',
    ]
    parts += [
        f'<rect x="{40 + 150 * i}" y="16" width="14" height="14" fill="{COLOURS[name]}"/>'
        f'<text x="{60 + 150 * i}" y="28">{NAMES[name]}</text>'
        for i, name in enumerate("AB")
    ]
    parts.append('<text x="360" y="28" fill="#555">height: items per second of a slice</text>')
    for i, name in enumerate(ORDER):
        rate = 110 + (18 if name == "B" else 0) - drift(i)
        x, y = 40 + SLICE * i, TOP + 130 - rate
        parts.append(f'<rect x="{x}" y="{y:g}" width="{SLICE - 6}" height="{rate:g}" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + SLICE / 2 - 3:g}" y="{y - 5:g}" text-anchor="middle">{name}</text>')
    for block in (0, 1):
        x = 40 + 4 * SLICE * block
        parts.append(f'<path d="M{x} 200 v8 h{4 * SLICE - 6} v-8" fill="none" stroke="#555"/>')
        parts.append(
            f'<text x="{x + 2 * SLICE}" y="228" text-anchor="middle" fill="#555">block {block + 1}: one ratio, '
            "the drift cancels</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("pair.svg").write_text(picture())
