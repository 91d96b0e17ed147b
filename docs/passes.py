"""Draw docs/passes.svg: three processes that take turns in slices while the machine drifts.

python docs/passes.py
"""

from __future__ import annotations

from pathlib import Path

from tuner.report.chart import DARK_STYLE

WIDTH, HEIGHT, SLICE, TOP = 720, 270, 54, 80
ORDER = "ABCCBACBAABC"
COLOURS = {"A": "#20759e", "B": "#b34700", "C": "#5b7f2b"}
GAIN = {"A": 0, "B": 18, "C": 8}
NAMES = {"A": "reference (A)", "B": "candidate (B)", "C": "candidate (C)"}


def drift(i: int) -> float:
    """Return how much slower the machine is in slice i than in the first, in pixels."""
    return 4.0 * i


def picture() -> str:
    """Return the picture as SVG; its text is readable on light and dark pages."""
    parts = [
        f'<svg class="tftune-chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13" role="img" aria-label="Three processes that take turns">',
        DARK_STYLE,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fff"/>',
    ]
    parts += [
        f'<rect x="{40 + 150 * i}" y="16" width="14" height="14" fill="{COLOURS[name]}"/>'
        f'<text x="{60 + 150 * i}" y="28">{NAMES[name]}</text>'
        for i, name in enumerate("ABC")
    ]
    legend = "height: items per second of a slice, on a machine that slows down"
    parts.append(f'<text x="40" y="54" fill="#555">{legend}</text>')
    for i, name in enumerate(ORDER):
        rate = 110 + GAIN[name] - drift(i)
        x, y = 40 + SLICE * i, TOP + 130 - rate
        parts.append(f'<rect x="{x}" y="{y:g}" width="{SLICE - 6}" height="{rate:g}" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + SLICE / 2 - 3:g}" y="{y - 5:g}" text-anchor="middle">{name}</text>')
    for number in (0, 1):
        x = 40 + 6 * SLICE * number
        parts.append(f'<path d="M{x} 220 v8 h{6 * SLICE - 6} v-8" fill="none" stroke="#555"/>')
        parts.append(
            f'<text x="{x + 3 * SLICE}" y="248" text-anchor="middle" fill="#555">pass {number + 1}: there and back, '
            "the drift cancels</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("passes.svg").write_text(picture())
