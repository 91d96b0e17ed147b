"""What `tftune recommend` shows: a card with the setting and what is expected of it, and the evidence behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from tuner.model.configuration import EXECUTOR
from tuner.paths import shipped_rules
from tuner.quantity import ratio_text
from tuner.report.card import Answer, Card, comparison_card, input_rows
from tuner.report.emit import Format
from tuner.report.rules import RECALLED, TITLES, evidence_lines
from tuner.report.terminal import processes_text, setting_text
from tuner.report.verdicts import rounds_text
from tuner.result.recommendation import (
    ExpectedSpeedup,
    RecommendationResult,
    SeveralResult,
    kind_text,
    n_studies,
    over_default,
)
from tuner.result.wording import range_text, speed_up
from tuner.rules.recipe import FRAMEWORK, LATENCY
from tuner.rules.rule import KEEP, AdviceCode, AdviceReason
from tuner.space.carrier import Variable
from tuner.space.deployment import Deployment
from tuner.space.term import CORES, SHARE
from tuner.stats.equivalence import VerdictCode

SAME_LATENCY = "same latency: "


def recommendation_card(result: RecommendationResult, *, command: str, own_options: str = "") -> Card:
    """Return the card of a recommendation; `command` names the workload and its options as they would be typed.

    `own_options` are those that only another recommendation has to be given, each after a space.
    """
    is_kept = result.advice.code is AdviceCode.KEEP_DEFAULT
    verified = result.verified
    rows = [("Why", text) for text in _why(result)]
    if result.counter_example is not None and not is_kept:
        counter_example = result.counter_example
        is_slower = counter_example.over_default < 1
        what = "the set was slower" if is_slower else "another setting was a tenth or more faster than the set"
        rows.append(("But", f"in a study of this model {what}: {over_default(counter_example)}"))
    rows += _several_rows({f"{of}{each.followed[0].sentence}": not each.is_followed for of, _, each in _beside(result)})
    rows += [("" if i else "Proof", text) for i, text in enumerate(_proof(result))]
    rows.append(("Valid", f"{_place(result)}, {result.mode}; measure again elsewhere"))
    rows += input_rows(result.inputs)
    unknown = [] if result.machine_known else ["this machine: no study behind these rules was made on it"]
    rows += [("" if i else "Unknown", text) for i, text in enumerate([*unknown, *result.outside])]
    if is_kept:
        rows.append(("Next", f"tftune search {command}"))
    else:
        rows.append(("Apply", f"tftune recommend {command}{own_options} --format sh"))
        formats = ", ".join(each for each in Format if each != Format.JSON)
        rows.append(("", f"formats: {formats}, or --json"))
        if verified is None:
            rows.append(("Verify", f"tftune recommend {command}{own_options} --verify"))
        rows.append(("Search", f"tftune search {command}"))
    recommend = f"tftune recommend {command}{own_options}"
    rows += _several_rows(
        {f"{recommend} {option} --format sh": each.is_followed for _, option, each in _beside(result)}
    )
    rows.append(("More", f"tftune recommend {command}{own_options} --details"))
    return Card(answers=(_answer(result), *_several_answers(result)), rows=tuple(rows))


def _why(result: RecommendationResult) -> Iterator[str]:
    """Yield why this is recommended."""
    stratum = result.advice.stratum
    same = () if result.evidence is None else result.evidence.equivalents
    where = "" if stratum is None else f" ({kind_text(stratum.kind)})"
    for each in result.followed:
        if each.advice is AdviceReason.FOLLOW:
            guides = f"; equal to {' and '.join(same)}" if same else ""
            yield f"it gained in the studies behind the rules{where}{guides}"
        elif len(result.followed) > 1:
            yield f"{TITLES[each.group]}: {each.sentence}"
        else:
            yield each.sentence.removeprefix(f"{KEEP[each.group]}: ")


def _answer(result: RecommendationResult) -> Answer:
    """Return what it comes to: what was measured, where it was; else what is expected."""
    same = SAME_LATENCY if result.followed[0].group == LATENCY else ""
    of, verified, n = f"{same}{result.workload}", result.verified, result.deployment.processes
    of += ", one process" if any(_beside(result)) else f", {n} processes side by side" if n > 1 else ""
    if result.advice.code is AdviceCode.KEEP_DEFAULT:
        text = f"{of}: {KEEP[result.followed[0].group]}; {_KEPT[result.advice.reason]}"
        return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=text)
    if verified is not None:
        measured = comparison_card(verified).answers[0]
        has_figure = verified.speedup is not None and verified.code is not VerdictCode.UNDECIDED
        known = verified.low is not None and verified.high is not None
        figure = speed_up(verified) if has_figure else range_text(verified) if known else "no figure"
        text = f"{of}: {figure} the speed of TensorFlow's defaults, measured here"
        is_worse = verified.code is VerdictCode.WORSE
        setting = () if is_worse else _words(result.deployment)
        return Answer(code=verified.code, word=measured.word, text=text, setting=setting)
    return _expected_answer(of, result)


def _beside(result: RecommendationResult) -> Iterator[tuple[str, str, SeveralResult]]:
    """Yield what the rules on processes say next to those on one, each with what it is of and its option."""
    if result.several is not None:
        yield "", "--instances", result.several
    if result.same_latency is not None:
        yield SAME_LATENCY, "--same-latency", result.same_latency


def _several_rows(texts: Mapping[str, bool]) -> list[tuple[str, str]]:
    """Return the rows of those texts that are wanted, under one title."""
    return [
        ("" if i else "Several", text) for i, text in enumerate(text for text, is_wanted in texts.items() if is_wanted)
    ]


def _several_answers(result: RecommendationResult) -> Iterator[Answer]:
    """Yield what the rules on processes come to beside those on one, where they set anything."""
    for of, _, each in _beside(result):
        if each.is_followed:
            yield _expected_answer(f"{of}{result.workload}, {each.deployment.processes} processes side by side", each)


def _words(deployment: Deployment) -> tuple[str, ...]:
    """Return the words of what to set."""
    words = [f"{name}={value}" for name, value in {**deployment.env, **deployment.arguments}.items()]
    return (*words, *([processes_text(deployment)] if deployment.processes > 1 else []))


def _expected_answer(of: str, result: RecommendationResult | SeveralResult) -> Answer:
    """Return what a rule that is followed is expected to gain, and what a call of several processes costs."""
    expected, n, setting = result.expected, result.deployment.processes, _words(result.deployment)
    if expected is None or expected.low is None or expected.high is None:
        price = f"; a call may take up to {n}× as long" if n > 1 else ""
        text = f"{of}: a rule applies, but what it gains here is not known{price}"
        return Answer(code=VerdictCode.UNDECIDED, word="TRY", text=text, setting=setting)
    one = expected.prediction_interval
    one_model = "" if one is None else f", between {one[0]:.2f}× and {one[1]:.2f}× for a single model"
    price = "".join(f"; {text}" for text in _price(expected, n))
    text = f"{of}: {expected.ratio:.2f}× over TensorFlow's defaults is expected{one_model}{price}; not measured here"
    return Answer(code=VerdictCode.BETTER, word="RECOMMENDED", text=text, setting=setting)


def _price(expected: ExpectedSpeedup, n_processes: int) -> Iterator[str]:
    """Yield how many times as long a call of several processes takes, with the range for a single model."""
    if n_processes > 1 and expected.call is not None:
        factor, one = expected.call.ratio * expected.ratio, expected.prediction_interval
        one_model = "" if one is None else f" ({factor / one[1]:.2f}× to {factor / one[0]:.2f}× for a single model)"
        yield f"a call takes {expected.call.ratio:.2f}×{one_model} as long"


_KEPT = {
    AdviceReason.NO_GAIN: "what the rules set is not shown to gain more than the margin here",
    AdviceReason.NO_EVIDENCE: "no study is of such a build",
    AdviceReason.OWN_STUDY: "its own study gained nothing by what the rules set",
    AdviceReason.NO_RULE: "no rule applies",
    AdviceReason.BY_RULE: "the rules advise it",
    None: "the rules advise it",
}


def _proof(result: RecommendationResult) -> Iterator[str]:
    """Yield what the answer rests on."""
    rules, expected = result.rules, result.expected
    origin = f"{_rules_text(rules.file)} of {rules.created[:10]}, from {n_studies(rules.studies)}"
    if result.verified is not None:
        yield f"{rounds_text(result.verified)}; the rules: {origin}"
    elif expected is None or expected.kind is None:
        yield origin
    else:
        mean = ratio_text(expected.ratio, expected.low, expected.high)
        yield f"the mean of {expected.n_workloads} models, each left out of the learning in turn: {mean}; {origin}"


def _place(result: RecommendationResult) -> str:
    limit = "" if result.quota else ", no CPU limit"
    return f"{result.shape}{limit}, {result.runtime}, oneDNN {'on' if result.onednn else 'off'}"


def details(result: RecommendationResult) -> Sequence[RenderableType]:
    """Return the evidence behind the card."""
    features, rules = result.features, result.rules
    return [
        Text(
            f"{result.workload} {result.mode} on {_place(result)}: average width "
            f"{features.width:.2f}, {features.flops / 1e9:.3g} GFLOPs per item{'' if features.known else ' or more'}"
        ),
        Text(f"rules: {_rules_text(rules.file)} ({rules.created[:10]}, from {n_studies(rules.studies)})", style="dim"),
        *(Text(line) for line in _lines(result)),
    ]


def _rules_text(file: str) -> str:
    """Return which rules these are: the shipped ones, or their file as it is from here, where that is below."""
    path = Path(file)
    if path == shipped_rules():
        return "the shipped rules"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _lines(result: RecommendationResult) -> Iterator[str]:
    for rule in (*result.followed, *(rule for _, _, each in _beside(result) for rule in each.followed)):
        yield f"{TITLES[rule.group]}: {rule.sentence}"
    if result.evidence is not None:
        yield from (f"   {line.text}" for line in evidence_lines(result.evidence))
        yield f"   {RECALLED}"
    yield f"setting: {setting_text(result.setting)}"


def cpu_limited(result: RecommendationResult) -> list[str]:
    """Return the variables that the rules set to all usable cores, whatever their number."""
    terms = {knob: term for rule in result.followed for knob, term in rule.recipe.items()}
    alone = CORES.name if result.setting.get(EXECUTOR.slots) != 1 else SHARE.name  # a single pool has all of them
    knobs = [knob for knob, term in terms.items() if term in (CORES.name, alone)]
    carriers = [FRAMEWORK.knobs[knob].carrier for knob in knobs if knob in FRAMEWORK.knobs]
    return [each.name for each in carriers if isinstance(each, Variable) and each.name in result.env]


def facts(result: RecommendationResult) -> list[str]:
    """Return what a snippet says of itself: what is gained and where; nothing where the default is kept."""
    if result.advice.code is AdviceCode.KEEP_DEFAULT:
        return []
    verified = result.verified
    place = _place(result)
    if verified is not None and verified.speedup is not None:
        return [f"Measured on {place}: {ratio_text(verified.speedup, verified.low, verified.high)} over the defaults"]
    expected = result.expected
    if expected is None or expected.low is None:
        return [f"For {place}; its gain is not known there"]
    gain = ratio_text(expected.ratio, expected.low, expected.high)
    one = expected.prediction_interval
    one_model = "" if one is None else f", {one[0]:.2f} to {one[1]:.2f} for a single one"
    rules = f"{_rules_text(result.rules.file)} of {result.rules.created[:10]}"
    return [
        f"Expected on {place}: {gain} over the defaults, the mean of {expected.n_workloads} models{one_model}",
        *(f"There {text} as under the defaults" for text in _price(expected, result.deployment.processes)),
        f"From {rules}; not measured here: --verify does that",
    ]
