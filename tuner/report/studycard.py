"""The card of a study: its answers on one process and on several, what they rest on, and the commands that follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from msgspec import structs

from tuner.measure.objective import Objective
from tuner.measure.rounds import GROUP, INCUMBENT, ONE_PROCESS, SAME_BATCH, SIMPLER
from tuner.measure.warning import Code
from tuner.paths import DEFAULT_STORAGE
from tuner.quantity import gib_text, ms_text, percent, plural, rate_text, ratio_text
from tuner.report.card import Answer, Card, input_rows, notes
from tuner.report.emit import SERVING, Batching, CpuLimit, Format, Ways, emit
from tuner.report.load import load_card
from tuner.report.terminal import build_text, fixed_knobs, place_text, setting_text
from tuner.result.budget import deciding, observation, searching, showing_tail
from tuner.result.load import CurveResult, LoadResult
from tuner.result.study import (
    FinalsResult,
    GroupsResult,
    LatencyResult,
    RecommendedResult,
    StudyResult,
    TailResult,
    VerdictResult,
)
from tuner.result.wording import Wording, range_text, speed_up, study_words, wording
from tuner.space.deployment import Deployment
from tuner.space.groups import INSTANCES
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import LimitStatus
from tuner.study.subject import Subject, Values
from tuner.trial.outcome import Status

_BATCH_SIZE = "batch_size"
_MUCH_LONGER = 1.25  # times as long takes a call that its user may not want
_PORT = "{8500+instance}"


def study_card(
    study: StudyResult, *, handle: str, storage: str = DEFAULT_STORAGE, load: LoadResult | None = None
) -> Card:
    """Return the card of a study; `handle` is what its user calls it, such as `last`.

    `load` is what was measured under load, which answers a search for capacity.
    """
    advice, finals = study.recommended, study.finals
    if study.objective is Objective.CAPACITY and advice is not None and load is not None:
        return _capacity_card(study, advice, load, study_words(handle, storage))
    if advice is None or finals is None:
        answer = Answer(
            code=VerdictCode.UNDECIDED,
            word="UNFINISHED",
            text=f"{study.workload.name}: there are no finals yet",
        )
        rows = [
            ("Next", "run the same search again: it continues"),
            *input_rows(study.workload.fed),
            *notes(study.warnings),
        ]
        return Card(answers=(answer,), rows=tuple(rows))
    several = study.groups
    of = study.workload.name if several is None else f"{study.workload.name}, one process"
    answers = [_answer(study, advice, finals, study.verdicts or {}, of=of)]
    if several is not None:
        answers.append(_several_answer(study, several))
    rows = [
        *_reasons(study, advice, finals),
        *_prices(advice, several),
        *_same_batch(study, advice),
        ("Proof", _proof(study, advice, finals)),
        ("Valid", f"{where(study)}; measure again elsewhere"),
        *input_rows(study.workload.fed),
        ("Study", study.study if study.created is None else f"{study.study}, {study.created[:10]}"),
        *_expectation_rows(study),
        *searching(study),
        *deciding(study, finals),
        *showing_tail(study, finals),
        *_next_steps(study, study_words(handle, storage)),
        *notes([each for each in study.warnings if each.code is not Code.NO_SEARCH]),
    ]
    return Card(answers=tuple(answers), rows=tuple(rows))


def _capacity_card(study: StudyResult, advice: RecommendedResult, load: LoadResult, of_study: str) -> Card:
    """Return the card of a search for capacity: what its choice carries beside the default, by the last load."""
    default, others = load.curves[0], load.curves[1:]
    shown = [curve for curve in others if curve.name == advice.source] or others
    measured = load_card(load)
    answers = list(load_card(structs.replace(load, curves=(default, *shown))).answers)
    if advice.source != default.name:
        answers[0] = replace(answers[0], setting=deployment_words(advice.deployment, study))
    elif advice.limits is LimitStatus.MET:
        verdicts = [curve.against_default for curve in others]
        is_open = any(verdict is not None and verdict.code is VerdictCode.UNDECIDED for verdict in verdicts)
        code = VerdictCode.UNDECIDED if is_open else VerdictCode.NO_DIFFERENCE
        keep = Answer(
            code=code, word="UNDECIDED" if is_open else "KEEP", text=f"{study.workload.name}: {advice.reason}"
        )
        answers = answers if is_open and len(others) == 1 else [keep, *answers]  # which says it already
    n = study.trials.ok + study.trials.pruned
    searched = f"{plural(n, 'setting')} measured in turns; those that carry most in simulation came under load"
    if len(others) > 1:
        searched += f"; the intervals of the {len(others)} hold together"
    rows = [
        ("Why", advice.reason),
        *[row for row in measured.rows if row[0] not in ("Study", "Next", "Note")],
        ("Search", searched),
        ("Valid", f"{where(study)}; measure again elsewhere"),
        *input_rows(study.workload.fed),
        ("Study", study.study if study.created is None else f"{study.study}, {study.created[:10]}"),
        *_next_steps(study, of_study),
        ("Size", f"tftune size {of_study} --rate R --max-p99 {load.limit_ms:g}ms gives how many carry a load"),
        *[row for row in measured.rows if row[0] == "Note"],
        *notes([each for each in study.warnings if each.code is not Code.NO_SEARCH]),
    ]
    return Card(answers=tuple(answers), rows=tuple(rows))


def _several_answer(study: StudyResult, several: GroupsResult) -> Answer:
    """Return what the finals on several processes say; that one is better is an answer, too."""
    of = _processes_text(several.finals)
    if several.recommended.source != ONE_PROCESS:
        return _answer(study, several.recommended, several.finals, several.verdicts, of=of)
    against = several.verdicts.get(ONE_PROCESS)
    is_known = against is not None and against.low is not None
    quantity = wording(study.objective).quantity
    figure = f"; several run at {range_text(against)} its {quantity}" if against and is_known else ""
    text = f"one process instead of {of}{figure}"
    return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=text)


def _answer(
    study: StudyResult,
    advice: RecommendedResult,
    finals: FinalsResult,
    by_name: dict[str, VerdictResult],
    *,
    of: str,
) -> Answer:
    """Return what finals say about `of`: a workload, or several processes of it."""
    defaults = f"{study.framework.title}'s defaults" if study.framework.name != "command" else "the defaults"
    words, spoken = deployment_words(advice.deployment, study), wording(study.objective)
    quantity = spoken.quantity
    gain = advice.gain
    if gain is not None and gain.code is VerdictCode.BETTER:
        code = VerdictCode.BETTER
        text = f"{of}: {speed_up(gain)} {spoken.over} {defaults}{_rates_text(study, advice, finals)}"
        return Answer(code=code, word=spoken.better, text=text, setting=words)
    against = advice.together or by_name.get(study.default)
    if advice.source != study.default:  # the default breaks a limit
        figure = "" if gain is None or gain.speedup is None else f"; {speed_up(gain)} the {quantity} of {defaults}"
        return Answer(code=VerdictCode.BETTER, word="USE", text=f"{of}: {advice.reason}{figure}", setting=words)
    if against is None or against.speedup is None:
        text = f"{of}: keep {defaults}; no speed-up can be named"
        return Answer(code=VerdictCode.UNDECIDED, word="UNDECIDED", text=text)
    interval = range_text(against)
    unseen = "; whether its variables reach the program was not seen" if observation(study, Code.UNSEEN) else ""
    if against.code is VerdictCode.NO_DIFFERENCE and observation(study, Code.NO_SEARCH):
        text = f"{of}: the guides' settings run at {interval} the {quantity} of {defaults}; no other setting was tried"
        return Answer(code=against.code, word="NO DIFFERENCE", text=text + unseen)
    if against.code is VerdictCode.NO_DIFFERENCE:
        start = "no setting made a difference" if unseen else "nothing to set"
        text = f"{of}: {start}; the best other setting runs at {interval} the {quantity} of {defaults}{unseen}"
        return Answer(code=against.code, word="NO DIFFERENCE", text=text)
    if against.code is VerdictCode.UNDECIDED:
        text = f"{of}: keep {defaults} for now; the best other setting runs at {interval} their {quantity}{unseen}"
        return Answer(code=against.code, word="UNDECIDED", text=text)
    if against.code is VerdictCode.WORSE:
        text = f"{of}: keep {defaults}; the best other setting {spoken.is_worse}, {speed_up(against)}"
        return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=text)
    return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=f"{of}: {advice.reason}")


def _processes_text(finals: FinalsResult) -> str:
    """Return how many processes side by side the finals were about."""
    return f"{finals.incumbent.get('instances', 'several')} processes side by side"


def _rates_text(study: StudyResult, advice: RecommendedResult, finals: FinalsResult) -> str:
    """Return the rates behind a gain; of several sessions these are only the last one's, and are left out."""
    if advice.gain is not None and advice.gain.sessions > 1:
        return ""
    rates = [_rate_of(finals, name) for name in (study.default, advice.source)]
    known = [rate_text(rate) for rate in rates if rate is not None]
    return f" ({known[0]} → {known[1]} {finals.unit})" if len(known) == 2 else ""


def _rate_of(finals: FinalsResult, name: str) -> float | None:
    """Return the rate of the contender that has a name."""
    return next((finals.rates.get(first) for first, names in finals.names.items() if name in names), None)


def deployment_words(deployment: Deployment, subject: Subject) -> tuple[str, ...]:
    """Return the words of what to set: variables, options and CPUs, and the batch size where it is another."""
    if not deployment:
        return ()
    words = [f"{name}={value}" for name, value in {**deployment.env, **deployment.options}.items()]
    for member in deployment.members:
        own = [f"{name}={value}" for name, value in {**member.env, **member.options}.items()]
        words.append(f"{member.name}: {' '.join(own)}" + (f" on CPUs {member.cpus}" if member.cpus else ""))
    if deployment.cpus is not None:
        words.append(f"CPUs {deployment.cpus}")
    if deployment.processes > 1 and not deployment.members:
        places = f", each on its own CPUs: {' | '.join(deployment.cpu_sets)}" if deployment.cpu_sets else ""
        words.append(f"{deployment.processes} processes{places}")
    if deployment.shared_batch:
        words.append(f"each batch of {deployment.shared_batch} split among them")
    if deployment.streams > 1:
        words.append(f"{deployment.streams} calls at once")
    usual = subject.baselines[subject.default].setting
    for name, value in deployment.arguments.items():
        title = "batch" if name == _BATCH_SIZE else name
        words.append(f"{title} {value} " + ("(unchanged)" if usual.get(name) == value else f"(default {usual[name]})"))
    return tuple(words)


def snippet(
    study: StudyResult,
    advice: RecommendedResult,
    format_: Format,
    *,
    model: str | None = None,
    better: str = "",
    load: LoadResult | None = None,
) -> str:
    """Return what applies the advice, of an ensemble to one `model` if it is named; raises BadInputError.

    `better` points to what was proven to be better than the advice. `load` is what was measured under load.
    """
    deployment, title = deployment_of(study, advice), f"tftune, study {study.study}"
    whole = None if model is None else deployment
    if model is not None:
        deployment, title = replace(deployment.member(model), gpu=deployment.gpu), f"{title}, {model}"
    if format_ is not Format.JSON:  # which is read by programs, and whole
        usual = study.baselines[study.default].setting
        changed = {name: value for name, value in deployment.arguments.items() if usual.get(name) != value}
        deployment = replace(deployment, arguments=changed)
    framework = study.framework
    ways = Ways(session=framework.session_code, server_flags=framework.server_flags, calls=framework.calls)
    return emit(
        deployment,
        format_,
        title=title,
        facts=_facts(study, advice),
        ways=ways,
        machine=study.machine,  # for the defaults, too: they take their threads from the CPUs that they see
        better=better,
        whole=whole,
        model=study.workload.name,
        memory_bytes=None if model else _process_bytes(study, advice, load),
        batching=_batching(study, advice, load),
    )


def _tails(study: StudyResult, advice: RecommendedResult) -> tuple[TailResult | None, TailResult | None]:
    """Return what the finals saw of the advice and of the default, None where they did not."""
    of_groups = study.groups is not None and advice is study.groups.recommended
    finals = study.groups.finals if study.groups is not None and of_groups else study.finals
    if finals is None:
        return None, None
    tails = {name: finals.tails.get(first) for first, names in finals.names.items() for name in names}
    return tails.get(advice.source), tails.get(study.default)


def _process_bytes(study: StudyResult, advice: RecommendedResult, load: LoadResult | None) -> float | None:
    """Return the most memory that a process of the advice was seen to hold, None where that is not known.

    Several hold their libraries in common, which counts once. So one alone is not taken to need less than the default.
    """
    if "index" in study.device:  # a GPU's memory is counted there, not the host's
        return None
    own, default = (None if tail is None else tail.peak_memory_bytes for tail in _tails(study, advice))
    curve = _curve(advice, load)
    peaks = [peak for peak in (own, None if curve is None else curve.peak_memory_bytes) if peak is not None]
    n = advice.deployment.processes
    return max(max(peaks) / n, 0 if n == 1 else default or 0) if peaks else None


def _batching(study: StudyResult, advice: RecommendedResult, load: LoadResult | None) -> Batching | None:
    """Return how a server makes batches as they were measured, None where the workload has none.

    Under load with a limit these are the batches that carry most within it, else those of the size in the finals. With
    a limit no more batches wait than it leaves time for. Calls of --rate wait already.
    """
    threads, n_processes = advice.deployment.streams, advice.deployment.processes
    curve = _curve(advice, load)
    if curve is not None and load is not None and load.limit_ms is not None:
        batch_ms = 1000 * curve.max_batch * threads * n_processes / curve.saturation
        return Batching(
            max_batch_size=curve.max_batch,
            timeout_us=round(1000 * curve.batch_wait_ms),
            threads=threads,
            enqueued=_enqueued(load.limit_ms, batch_ms, threads),
        )
    size = advice.setting.get(_BATCH_SIZE)
    if not isinstance(size, int):
        return None
    made = Batching(max_batch_size=size, threads=threads)
    tail, limit_s = _tails(study, advice)[0], study.limits.p99_s
    call_ms = None if tail is None else tail.p99 or tail.p50
    if call_ms is None or limit_s is None or study.workload.rate:
        return made
    return replace(made, enqueued=_enqueued(1000 * limit_s, call_ms, threads))


def _curve(advice: RecommendedResult, load: LoadResult | None) -> CurveResult | None:
    """Return what the setting of an advice did under load, whatever its batches; None where that was not measured."""
    curves = () if load is None else load.curves
    return next((each for each in curves if _but_batch(each.setting) == _but_batch(advice.setting)), None)


def _but_batch(setting: Values) -> Values:
    return {name: value for name, value in setting.items() if name != _BATCH_SIZE}


def _enqueued(limit_ms: float, batch_ms: float, threads: int) -> int:
    """Return how many batches may wait so that the last of them still ends within a limit, one at least."""
    return max(1, int((limit_ms / batch_ms - 1) * threads))


def deployment_of(study: StudyResult, advice: RecommendedResult) -> Deployment:
    """Return what applies the advice as it was measured: under its variables, and on its GPU if that is a GPU."""
    deployment = replace(
        advice.deployment.under(study.variables),
        measured_cpus=CpuLimit.of(study.machine).busy_cpus,
        framework=study.framework.name,
    )
    device = study.device
    if "index" not in device:
        return deployment
    gpu = str(device["index"]) if device.get("slice_index") is None else str(device["uuid"])
    return replace(deployment, gpu=gpu, device=study.device_root)


def _facts(study: StudyResult, advice: RecommendedResult) -> list[str]:
    """Return what a snippet says of itself: what is gained, when that was seen, and where it holds."""
    gained = advice.reason
    if advice.gain is not None and advice.gain.speedup is not None:
        sessions = plural(advice.gain.sessions, "session")
        quantity = wording(study.objective).quantity
        gained = f"{speed_up(advice.gain)} the {quantity} of the defaults ({study.workload.name}, {sessions})"
    against = (study.verdicts or {}).get(study.default)
    is_open = against is not None and against.code is VerdictCode.UNDECIDED
    if advice is study.recommended and advice.gain is None and is_open:
        gained += "; undecided, so that another setting may be better"
    limits = [] if advice.limits is None else [f"limits {advice.limits}"]
    when = [] if study.created is None else [study.created[:10]]
    batch_size = study.baselines[study.default].setting.get(_BATCH_SIZE)
    is_same = batch_size is not None and advice.setting.get(_BATCH_SIZE) == batch_size
    batch = [f"batch size {batch_size}"] if is_same else []
    return [", ".join([gained, *when]), "; ".join([f"Measured on {where(study)}", *batch, *limits])]


def _reasons(study: StudyResult, advice: RecommendedResult, finals: FinalsResult) -> Iterator[tuple[str, str]]:
    """Yield why each answer is what it is."""
    several = study.groups
    if several is None:
        yield "Why", _why(study, advice, finals, study.verdicts or {})
        return
    yield "Why", f"one process: {_why(study, advice, finals, study.verdicts or {})}"
    yield "", f"several: {_why(study, several.recommended, several.finals, several.verdicts)}"


def _prices(advice: RecommendedResult, several: GroupsResult | None) -> Iterator[tuple[str, str]]:
    """Yield what a call takes under each setting that is recommended, beside the default."""
    answers = [("one process: " if several else "", advice)]
    answers += [("several: ", several.recommended)] if several and several.recommended.source != ONE_PROCESS else []
    texts = [f"{of}{_price_text(answer.latency)}" for of, answer in answers if answer.latency is not None]
    yield from (("" if i else "Latency", text) for i, text in enumerate(texts))


def _same_batch(study: StudyResult, advice: RecommendedResult) -> Iterator[tuple[str, str]]:
    """Yield what is gained beside the default at the batch size of the answer, where that is another."""
    name = study.default + SAME_BATCH
    verdict = (study.verdicts or {}).get(name)
    if advice.source != INCUMBENT or verdict is None or verdict.low is None:
        return
    batch_size, quantity = advice.setting[_BATCH_SIZE], wording(study.objective).quantity
    yield "Threads", f"at batch size {batch_size} alone: {range_text(verdict)} the {quantity} of the defaults"


def _price_text(price: LatencyResult) -> str:
    """Return how much longer a call takes, how long, and the memory of all processes."""
    before, after = price.before, price.after
    size = "" if before.items == after.items else f" of {after.items} items instead of {before.items}"
    parts = [f"a call{size} takes {ratio_text(price.ratio, price.low, price.high)} times as long"]
    for name, *ms in (("p50", before.p50_ms, after.p50_ms), ("p99", before.p99_ms, after.p99_ms)):
        parts += [f"{name} {ms_text(ms[0])} → {ms_text(ms[1])} ms"] if None not in ms else []
    if before.peak_memory_bytes is not None and after.peak_memory_bytes is not None:
        parts.append(f"memory {before.peak_memory_bytes / 2**30:.2f} → {gib_text(after.peak_memory_bytes)}")
    parts += ["the shortest call is another search: --objective latency"] if price.low > _MUCH_LONGER else []
    return "; ".join(parts)


def _why(
    study: StudyResult, advice: RecommendedResult, finals: FinalsResult, verdicts: Mapping[str, VerdictResult]
) -> str:
    """Return why this is recommended."""
    is_gain = advice.gain is not None and advice.gain.code is VerdictCode.BETTER
    if advice.limits is LimitStatus.BROKEN or (advice.source != study.default and not is_gain):
        return advice.reason
    if advice.source == ONE_PROCESS:
        return advice.reason
    if advice.source == study.default:
        if advice.gain is None and advice.together is not None and advice.together.sessions > 1:
            return advice.reason
        few_digits, spoken = observation(study, Code.FEW_DIGITS), wording(study.objective)
        return _why_default(advice, verdicts.get(study.default), finals, spoken, few_digits)
    same = _same_as(study, finals, advice.source)
    parts = []
    if advice.source == study.default + SAME_BATCH:
        parts.append("all of the gain comes from the batch size; the threads stay as they are")
    elif len(advice.alike) > 1:
        best = wording(study.objective).best
        parts.append(f"the simplest of {len(advice.alike)} settings tied for {best}")
    else:
        parts.append(_fastest_text(study, finals, advice.source))
    if same:
        parts.append(f"the same as {' and '.join(same)}")
    return "; ".join(parts)


def _fastest_text(study: StudyResult, finals: FinalsResult, source: str) -> str:
    """Return that a setting is the fastest, or which may be faster still and was not shown to be better."""
    best = wording(study.objective).best
    own = next((first for first, names in finals.names.items() if source in names), source)
    sign = -1 if study.objective.smaller_is_better else 1
    ahead = [
        first for first, rate in finals.rates.items() if sign * rate > sign * finals.rates.get(own, sign * math.inf)
    ]
    if not ahead:
        return f"{best} in the finals"
    names = " and ".join(" ".join(finals.names[first]) for first in ahead)
    return f"{best} that was shown to be better than the defaults; not shown, and perhaps better still: {names}"


def _why_default(
    advice: RecommendedResult,
    against: VerdictResult | None,
    finals: FinalsResult,
    spoken: Wording,
    few_digits: str,
) -> str:
    """Return why the default is kept, by the verdict of its rival; `few_digits` is what a command does not print."""
    margin = percent(finals.margin, 0)
    verdict = advice.together or against
    code = None if verdict is None else verdict.code
    if code is VerdictCode.NO_DIFFERENCE:
        return f"the whole interval lies within {margin} of the defaults"
    if code is VerdictCode.UNDECIDED and few_digits:
        return few_digits
    if code is VerdictCode.UNDECIDED:
        rival = " ".join(f"{name}={value}" for name, value in finals.incumbent.items() if name != INSTANCES)
        return f"{plural(finals.rounds, 'round')} cannot tell; the other setting is {rival}"
    return f"no setting was shown {spoken.more_than.format(margin=margin)}"


def _same_as(study: StudyResult, finals: FinalsResult, source: str) -> list[str]:
    """Return the recommended settings that are the same as what is recommended here."""
    own = {INCUMBENT, GROUP, SIMPLER, ONE_PROCESS}
    names = next((names for names in finals.names.values() if source in names), ())
    return [name for name in names if name in study.baselines and name not in own]


def _proof(study: StudyResult, advice: RecommendedResult, finals: FinalsResult) -> str:
    """Return what the answer rests on."""
    n = study.trials.ok + study.trials.pruned
    several = "" if study.groups is None else f", {study.groups.finals.rounds} with several at once"
    n_sessions = 1 if advice.together is None else advice.together.sessions
    return (
        f"{plural(n, 'setting')} measured in turns with the default; then {plural(finals.rounds, 'round')} of new "
        f"processes{several}; {plural(n_sessions, 'session')}"
    )


def where(study: StudyResult) -> str:
    """Return what a result is valid for: cores, limit and build, and how the workload has changed the cores."""
    pinned = "".join(f"{each.found}; " for each in study.warnings if each.code is Code.PINNED)
    return f"{pinned}{place_text(study)}, {build_text(study)}"


def _next_steps(study: StudyResult, of_study: str) -> Iterator[tuple[str, str]]:
    """Yield the commands that come next; those for several processes where these have an answer of their own."""
    advice, several = study.recommended, study.groups
    deployment = Deployment() if advice is None else advice.deployment
    is_ensemble = bool(deployment.members)
    is_something = bool(deployment) and (not is_ensemble or advice is None or advice.source != study.default)
    is_several = several is not None and several.recommended.deployment.processes > 1
    format_ = " --format compose" if is_ensemble else " --format python" if deployment.options else ""
    if is_something:
        yield "Apply", f"tftune emit {of_study}{format_}"
    if is_several:
        yield "" if is_something else "Apply", f"tftune emit {of_study} --instances"
    if is_something or is_several:
        yield "", f"--format {'sh, compose, json; with --model NAME all' if is_ensemble else _formats(study)}"
    if is_something:
        port = f" --port {_PORT}" if deployment.processes > 1 and not is_ensemble else ""
        yield "Run", f"tftune run {of_study} -- python serve.py{' {model}' if is_ensemble else port}"
    if is_several:
        command = f"tftune run {of_study} --instances -- python serve.py --port {_PORT}"
        yield "" if is_something else "Run", command
    if study.objective is Objective.CAPACITY:
        yield "Check", f"tftune load {of_study}"
    elif advice is not None and advice.gain is not None:
        yield "Check", f"tftune check {of_study}"
    if is_several and several is not None and several.recommended.gain is not None:
        is_first = advice is None or advice.gain is None
        yield "Check" if is_first else "", f"tftune check {of_study} --instances"
    yield "More", f"tftune report {of_study} --open"


def _formats(study: StudyResult) -> str:
    """Return the formats of a snippet, those of the framework's own server among them."""
    return ", ".join(each for each in Format if each not in SERVING or study.framework.server_flags)


def _expectation_rows(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield the row of a card, where a model was asked and there was something to choose."""
    expectation = study.expectation
    words = "" if expectation is None else setting_text(expectation.setting, fixed_knobs(study))
    if expectation is None or not words:
        return
    if expectation.ratio is not None:
        outcome = f"its trial: {ratio_text(expectation.ratio, expectation.low, expectation.high)}"
    elif expectation.status is None:
        outcome = "it was not tried"
    else:
        outcome = "its trial gave no figure" + ("" if expectation.status is Status.OK else f" ({expectation.status})")
    ranks = expectation.rank_correlation
    order = "" if ranks is None else f"; rank correlation {ranks:.2f} over {expectation.settings} settings"
    weight = "" if expectation.trust is None else f"; weight of the model at the end {percent(expectation.trust, 0)}"
    yield "Predicted", f"{expectation.predicted:.2f}× the default with {words}; {outcome}{order}{weight}"
