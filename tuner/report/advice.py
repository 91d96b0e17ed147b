"""What `tftune recommend` shows: the setting, what is expected of it, and the evidence behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tuner.report.layout import ratio_text
from tuner.report.rules import RECALLED, TITLES, evidence_lines, kind_of, n_studies, over_default, ratio_of
from tuner.report.terminal import rounds_text
from tuner.rules.strata import Advice, Recommendation


def page(document: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Return everything but the snippet."""
    features, rules = document["features"], document["rules"]
    return [
        Text(
            f"{document['workload']} {document['mode']} on {document['shape']}, {document['runtime']}: average width "
            f"{features['width']:.2f}, {features['flops'] / 1e9:.3g} GFLOPs an item"
            f"{'' if features['known'] else ' or more'}"
        ),
        Text(
            f"rules of {_nearby(rules['file'])}, {rules['created'][:10]}, from {n_studies(rules['studies'])}",
            style="dim",
        ),
        "",
        *(Text(line) for line in _lines(document)),
    ]


def _nearby(file: str) -> Path:
    """Return a path as it is from here, where that is below."""
    path = Path(file)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    for rule in document["followed"]:
        yield f"{TITLES[rule['group']]}: {rule['sentence']}"
    # Of a rule that is not followed, its reason says enough.
    if document["followed"][-1]["advice"] in (Advice.FOLLOW, Advice.NO_RULE, Advice.BY_RULE):
        lines = [*evidence_lines(document["evidence"])]
        yield from (f"   {line}" for line in lines)
        if lines:
            yield f"   {RECALLED}"
    setting = " ".join(f"{knob}={value}" for knob, value in document["setting"].items())
    yield f"setting: {setting}"
    search = f"tftune search {document['workload']} --space threads"
    own = document["counter_example"]
    is_kept = document["advice"]["code"] == Recommendation.KEEP_DEFAULT
    if own is not None and not is_kept:
        yield f"a study of this very workload found better, {kind_of(own)}: {over_default(own)}: search, {search}"
    if is_kept:
        yield f"expected over tf-default: 1.00, as it is the default; to find what this workload gains: {search}"
    expected = document["expected"]
    if expected is not None and not is_kept:
        n, where = expected["workloads"], kind_of(expected)
        yield f"expected over tf-default: {ratio_of(expected)}, the mean of {n} workloads that were held out, {where}"
        if expected["next"]:
            low, high = expected["next"]
            yield f"one more workload lies between {low:.2f} and {high:.2f} (95 %)"
    if not document["machine_known"]:
        yield "this machine is not among those of the evidence"
    for text in document["outside"]:
        yield f"outside of the evidence: {text}"
    if document["outside"] and not is_kept:
        yield "so no gain is promised: measure it, tftune recommend … --verify"


def verified(document: Mapping[str, Any]) -> str:
    """Return what the measurement said, in a line."""
    ratio = ratio_text(document["speedup"], document["low"], document["high"])
    how = f"{document['verdict']}; {rounds_text(document)}"
    warning = "; do not follow these rules here" if document["verdict"] == "worse" else ""
    return f"measured here, over tf-default: {ratio} ({how}){warning}"
