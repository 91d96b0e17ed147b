"""What `tftune recommend` shows: the setting, what is expected of it, and the evidence behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from tuner.report.layout import ratio_text
from tuner.report.result.comparison import ComparisonResult
from tuner.report.result.recommendation import RecommendationResult
from tuner.report.rules import RECALLED, TITLES, evidence_lines, kind_text, n_studies, over_default
from tuner.report.terminal import setting_text
from tuner.report.verdicts import rounds_text
from tuner.rules.advice import AdviceCode, AdviceReason
from tuner.stats.equivalence import VerdictCode


def page(result: RecommendationResult) -> Sequence[RenderableType]:
    """Return everything but the snippet."""
    features, rules = result.features, result.rules
    return [
        Text(
            f"{result.workload} {result.mode} on {result.shape}, {result.runtime}: average width "
            f"{features.width:.2f}, {features.flops / 1e9:.3g} GFLOPs per item{'' if features.known else ' or more'}"
        ),
        Text(
            f"rules: {_nearby(rules.file)} ({rules.created[:10]}, from {n_studies(rules.studies)})",
            style="dim",
        ),
        "",
        *(Text(line) for line in _lines(result)),
    ]


def _nearby(file: str) -> Path:
    """Return a path as it is from here, where that is below."""
    path = Path(file)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _lines(result: RecommendationResult) -> Iterator[str]:
    for rule in result.followed:
        yield f"{TITLES[rule.group]}: {rule.sentence}"
    # Of a rule that is not followed, its reason says enough.
    is_told = result.followed[-1].advice in (AdviceReason.FOLLOW, AdviceReason.NO_RULE, AdviceReason.BY_RULE)
    if result.evidence is not None and is_told:
        yield from (f"   {line.text}" for line in evidence_lines(result.evidence))
        yield f"   {RECALLED}"
    yield f"setting: {setting_text(result.setting)}"
    search = f"tftune search {result.workload} --space threads"
    counter_example = result.counter_example
    is_kept = result.advice.code is AdviceCode.KEEP_DEFAULT
    if counter_example is not None and not is_kept:
        yield (
            f"a study of this workload contradicts the rule ({kind_text(counter_example.situation)}): "
            f"{over_default(counter_example)}; to search instead: {search}"
        )
    if is_kept:
        yield f"expected speed-up over tf-default: 1.00 (it is the default); to search for a gain: {search}"
    expected = result.expected
    if expected is not None and expected.kind is not None:
        ratio = ratio_text(expected.ratio, expected.low, expected.high)
        where = f"mean over {expected.n_workloads} held-out workloads ({kind_text(expected.kind)})"
        yield f"expected speed-up over tf-default: {ratio}, {where}"
        if expected.prediction_interval is not None:
            low, high = expected.prediction_interval
            yield f"95 % prediction interval for a new workload: {low:.2f} to {high:.2f}"
    if not result.machine_known:
        yield "no study behind these rules was made on this machine"
    for text in result.outside:
        yield f"not covered by any study: {text}"
    if result.outside and not is_kept:
        yield "so the gain here is unknown; to measure it: tftune recommend … --verify"


def facts(result: RecommendationResult, verified: ComparisonResult | None) -> list[str]:
    """Return what a snippet says of itself: what is gained and where; nothing where the default is kept."""
    if result.advice.code is AdviceCode.KEEP_DEFAULT:
        return []
    place = f"{result.shape}, {result.runtime}"
    if verified is not None and verified.speedup is not None:
        return [f"Measured on {place}: {ratio_text(verified.speedup, verified.low, verified.high)} over the defaults"]
    expected = result.expected
    if expected is None or expected.low is None:
        return [f"For {place}; its gain is not known there"]
    gain = ratio_text(expected.ratio, expected.low, expected.high)
    return [f"Expected on {place}: {gain} over the defaults, the mean of other workloads; --verify measures it"]


def verified(measured: ComparisonResult) -> str:
    """Return what the measurement said, in a line."""
    ratio = ratio_text(measured.speedup, measured.low, measured.high)
    how = f"{measured.code}; {rounds_text(measured)}"
    warning = "; do not use these rules here" if measured.code is VerdictCode.WORSE else ""
    return f"measured speed-up over tf-default: {ratio} ({how}){warning}"
