"""Write the tables of README.md from the documents beside it, between their marks; the words between them are ours.

.venv/bin/python -m results.frameworks.page
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results.marks import filled, machine

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
MODELS = ("resnet50", "vgg19", "densenet201", "efficientnetb0", "resnet50+densenet201+vgg19")
READ_OFF = 0.1  # how right the paper's figures are that were read off bars
Rate = tuple[float, float, float]
"""Items a second: the lower end of an interval, the figure, the upper end."""
FRAMEWORKS = {"tensorflow": "TensorFlow", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
# Read off the bars of the paper's figure for its machine A, CPU only: predictions a second by batch size. It has a
# logarithmic axis, so that these are right to about a tenth. It has no OpenVINO for EfficientNet-B0.
PAPER: Mapping[str, Mapping[str, Mapping[int, float]]] = {
    "resnet50": {
        "tensorflow": {1: 8, 4: 33, 16: 40, 64: 50, 256: 52, 1024: 55},
        "onnxruntime": {1: 18, 4: 20, 16: 29, 64: 30, 256: 32, 1024: 29},
        "openvino": {1: 160, 4: 250, 16: 295, 64: 315, 256: 335, 1024: 295},
    },
    "vgg19": {
        "tensorflow": {1: 22, 4: 60, 16: 85, 64: 85, 256: 85, 1024: 95},
        "onnxruntime": {1: 43, 4: 39, 16: 50, 64: 53, 256: 56, 1024: 45},
        "openvino": {1: 165, 4: 255, 16: 300, 64: 315, 256: 340, 1024: 300},
    },
    "densenet201": {
        "tensorflow": {1: 11, 4: 25, 16: 46, 64: 32, 256: 30, 1024: 31},
        "onnxruntime": {1: 19, 4: 19, 16: 26, 64: 26, 256: 26, 1024: 25},
        "openvino": {1: 55, 4: 120, 16: 200, 64: 140, 256: 105, 1024: 90},
    },
    "efficientnetb0": {
        "tensorflow": {1: 22, 4: 57, 16: 82, 64: 80, 256: 82, 1024: 88},
        "onnxruntime": {1: 24, 4: 31, 16: 30, 64: 31, 256: 34, 1024: 35},
    },
    "resnet50+densenet201+vgg19": {
        "tensorflow": {1: 9, 4: 21, 16: 28, 64: 24, 256: 22, 1024: 23},
        "onnxruntime": {1: 5, 4: 5, 16: 6, 64: 7, 256: 7, 1024: 8},
        "openvino": {1: 20, 4: 36, 16: 41, 64: 40, 256: 40, 1024: 36},
    },
}


def documents() -> dict[str, dict[str, Any]]:
    """Return the documents that are there, by model."""
    paths = {model: FOLDER / model / "frameworks.json" for model in MODELS}
    return {model: json.loads(path.read_text()) for model, path in paths.items() if path.exists()}


def verdicts(document: Mapping[str, Any]) -> str:
    """Return the table of one model at the batch size of the verdicts."""
    rows = [row for row in document["rows"] if row["batch_size"] == document["batch_size"]]
    ones = {(row["framework"], row["kind"]): row for row in document["rows"] if row["batch_size"] == 1}
    lines = ["| framework | | items/s | over TensorFlow's default | first answer | memory | batch 1: p50, p95, p99 |"]
    lines.append("| --- | --- | ---: | --- | --- | ---: | --- |")
    for row in rows:
        if row["kind"] == "tuned" and row["is_default"]:
            continue
        ratio = row["ratio"]
        over = (
            ""
            if ratio is None
            else f"{ratio['speedup']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] {row['verdict']}"
        )
        setting = "default" if row["is_default"] else f"tuned: {words(row['setting'])}"
        load = "" if row["load_s"] is None else f"{row['load_s']:.1f} s, {row['cold_load_s']:.1f} s"
        one = ones.get((row["framework"], row["kind"]))
        times = "" if one is None else ", ".join(number(one[key]) for key in ("p50_ms", "p95_ms", "p99_ms")) + " ms"
        memory = "" if row["peak_memory_bytes"] is None else f"{row['peak_memory_bytes'] / 2**30:.2f} GiB"
        rate = row["message"] if row["items_per_s"] is None else number(row["items_per_s"])
        lines.append(f"| {row['framework']} | {setting} | {rate} | {over} | {load} | {memory} | {times} |")
    return "\n".join([*lines, "", machine(document["machine"])])


def words(setting: Mapping[str, Any]) -> str:
    """Return a setting without its batch size."""
    return " ".join(f"{name}={value}" for name, value in setting.items() if name != "batch_size")


def number(value: float | None) -> str:
    """Return a number to three digits."""
    return "—" if value is None else f"{value:#.3g}".rstrip(".")


def shapes(every: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where rates are highest, and who is first at small and large batches, in the paper and here."""
    lines = [
        "| model | | highest at batch | order at batch 1 | order at the largest |",
        "| --- | --- | --- | --- | --- |",
    ]
    for model, document in every.items():
        theirs = {
            name: {b: ((1 - READ_OFF / 2) * x, x, (1 + READ_OFF / 2) * x) for b, x in curve.items()}
            for name, curve in PAPER[model].items()
        }
        ours = {name: curve for name in FRAMEWORKS if (curve := defaults(document, name))}
        for title, curves in (("paper", theirs), ("here", ours)):
            peaks = ", ".join(
                f"{FRAMEWORKS[name]} {max(curve, key=lambda size: curve[size][1])}"
                + (f" (of up to {max(curve)})" if title == "here" else "")
                for name, curve in curves.items()
                if len(curve) > 2
            )
            peaks = peaks or "not measured"
            common = set.intersection(*(set(curve) for curve in curves.values())) if curves else set()
            last = f"{max(common)}: {order(curves, max(common))}" if common else "not measured"
            lines.append(f"| {model if title == 'paper' else ''} | {title} | {peaks} | {order(curves, 1)} | {last} |")
    return "\n".join(lines)


def defaults(document: Mapping[str, Any], framework: str) -> dict[int, Rate]:
    """Return the rates of a framework's default by batch size; the interval is that of the ratio to TensorFlow's."""
    rows = [row for row in document["rows"] if (row["framework"], row["kind"]) == (framework, "default")]
    rates: dict[int, Rate] = {}
    for row in rows:
        rate, ratio = row["items_per_s"], row["ratio"]
        if rate is not None:
            low, high = (1.0, 1.0) if ratio is None else (ratio[end] / ratio["speedup"] for end in ("low", "high"))
            rates[row["batch_size"]] = (low * rate, rate, high * rate)
    return rates


def order(curves: Mapping[str, Mapping[int, Rate]], batch_size: int) -> str:
    """Return the frameworks by their rates at a batch size, the fastest first; ≈ where intervals overlap."""
    if not all(batch_size in curve for curve in curves.values()):
        return "not measured"
    names = sorted(curves, key=lambda name: -curves[name][batch_size][1])
    text = ""
    for before, name in zip((None, *names), names, strict=False):
        _, rate, high = curves[name][batch_size]
        sign = "" if before is None else " ≈ " if high >= curves[before][batch_size][0] else " > "
        text += f"{sign}{FRAMEWORKS[name]} {number(rate)}"
    return text


def all_tables() -> dict[str, str]:
    """Return the tables by the name of their marks."""
    every = documents()
    return {model: verdicts(document) for model, document in every.items()} | {"shapes": shapes(every)}


def main(_: Sequence[str] = ()) -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(), all_tables()))


if __name__ == "__main__":
    main()
