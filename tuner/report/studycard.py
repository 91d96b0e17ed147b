"""The card of a study: its answers on one process and on several, what they rest on, and the commands that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgspec import structs

from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.measure.objective import Objective
from tuner.measure.recommendation import MUCH_LONGER
from tuner.measure.rounds import GROUP, INCUMBENT, ONE_PROCESS, SAME_BATCH, SAME_LATENCY, SIMPLER
from tuner.measure.warning import Code
from tuner.paths import DEFAULT_STORAGE
from tuner.quantity import gib_text, ms_text, percent, plural, rate_text, ratio_text
from tuner.report.card import Answer, Card, input_rows, notes
from tuner.report.emit import SERVING, Batching, CpuLimit, Format, Ways, emit
from tuner.report.load import load_card
from tuner.report.terminal import build_text, fixed_knobs, place_text, processes_text, setting_text
from tuner.result.budget import deciding, observation, searching, showing_tail
from tuner.result.document import other_values
from tuner.result.load import CurveResult, LoadResult
from tuner.result.study import (
    AT_SAME_LATENCY,
    ONE,
    SEVERAL,
    AnswerResult,
    FinalsResult,
    LatencyResult,
    PlannedResult,
    RecommendedResult,
    StudyResult,
    TailResult,
    VerdictResult,
)
from tuner.result.wording import (
    OPTIONS,
    Wording,
    disagreement,
    of_text,
    planned_text,
    range_text,
    sessions_words,
    speed_up,
    study_words,
    wording,
)
from tuner.space.auditing import cpus_pinned
from tuner.space.deployment import Deployment
from tuner.space.groups import INSTANCES
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import LimitStatus
from tuner.study.subject import Subject, Values
from tuner.trial.outcome import Status

_BATCH_SIZE = "batch_size"
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
    if study.planned is not None:
        return _planned_card(study, study.planned, study_words(handle, storage))
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
    rows = [
        *_reasons(study),
        *_prices(study),
        *_same_batch(study, advice),
        ("Proof", _proof(study, advice)),
        *_origin(study),
        *_expectation_rows(study),
        *searching(study),
        *deciding(study),
        *showing_tail(study),
        *_next_steps(study, study_words(handle, storage)),
        *_notes(study),
    ]
    answers = tuple(_answer(study, answer, of=_of(study, name, answer)) for name, answer in study.answers.items())
    return Card(answers=answers, rows=tuple(rows))


def _capacity_card(study: StudyResult, advice: RecommendedResult, load: LoadResult, of_study: str) -> Card:
    """Return the card of a search for capacity: what its choice carries beside the default, by the last load."""
    default, others = load.curves[0], load.curves[1:]
    shown = [curve for curve in others if curve.name == advice.source] or others
    measured = load_card(load)
    answers = list(load_card(structs.replace(load, curves=(default, *shown))).answers)
    if advice.source != default.name:
        answers[0] = replace(answers[0], setting=deployment_words(advice.deployment, study))
    elif not load.has_no_rate:
        codes = [curve.against_default.code for curve in others if curve.against_default is not None]
        is_open = VerdictCode.UNDECIDED in codes or advice.limits is LimitStatus.UNKNOWN
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
        *_origin(study),
        *_next_steps(study, of_study),
        ("Size", f"tftune size {of_study} --rate R --max-p99 {load.limit_ms:g}ms gives how many carry a load"),
        *[row for row in measured.rows if row[0] == "Note"],
        *_notes(study),
    ]
    return Card(answers=tuple(answers), rows=tuple(rows))


def _planned_card(study: StudyResult, planned: PlannedResult, of_study: str) -> Card:
    """Return the card of planned measurements, of which none is a verdict."""
    text = f"{study.workload.name}: {planned_text(planned)}"
    best = setting_text(planned.best or {}, fixed_knobs(study))
    call = "" if planned.call is None else f"a call takes {planned.call:.2f}× as long; "
    rows = [
        *([("Best", f"{best}; {call}the largest of many estimates is mostly too large")] if best else []),
        *_origin(study),
        ("Prove", planned.search),
        ("More", f"tftune report {of_study} --open"),
        *_notes(study),
    ]
    return Card(answers=(Answer(code=VerdictCode.UNDECIDED, word="NOT PROVEN", text=text),), rows=tuple(rows))


def _origin(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield where a result holds, what was fed to the model, and which study it is of."""
    yield "Valid", f"{where(study)}; measure again elsewhere"
    yield from input_rows(study.workload.fed)
    yield "Study", study.study if study.created is None else f"{study.study}, {study.created[:10]}"


def _notes(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield the warnings, without the one that has a row of its own."""
    return notes([each for each in study.warnings if each.code is not Code.NO_SEARCH])


def _of(study: StudyResult, name: str, answer: AnswerResult) -> str:
    """Return what an answer is of: a workload, several processes of it, or its latency."""
    if name == ONE:
        return study.workload.name + ("" if study.groups is None else f", {ONE}")
    n = answer.finals.incumbent.get(INSTANCES, 1)
    processes = "" if n == 1 else f"{n} processes side by side"
    return ", ".join(filter(None, [AT_SAME_LATENCY if name == AT_SAME_LATENCY else "", processes]))


def _one_process_answer(study: StudyResult, several: AnswerResult, *, of: str) -> Answer:
    """Return the answer that one process is better than several."""
    against = several.verdicts.get(ONE_PROCESS)
    is_known = against is not None and against.low is not None
    quantity = wording(study.objective).quantity
    figure = f"; several run at {range_text(against)} its {quantity}" if against and is_known else ""
    text = f"one process instead of {of}{figure}"
    return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=text)


def _answer(study: StudyResult, answer: AnswerResult, *, of: str) -> Answer:
    """Return what finals say about `of`."""
    advice, finals, by_name = answer.recommended, answer.finals, answer.verdicts
    if advice.source == ONE_PROCESS:
        return _one_process_answer(study, answer, of=of)
    defaults = f"{study.framework.title}'s defaults" if study.framework.name != "command" else "the defaults"
    words, spoken = deployment_words(advice.deployment, study), wording(study.objective)
    quantity = spoken.quantity
    gain = advice.gain
    unseen = "; whether its variables reach the program was not seen" if observation(study, Code.UNSEEN) else ""
    if gain is not None and gain.code is VerdictCode.BETTER:
        code = VerdictCode.BETTER
        text = f"{of}: {speed_up(gain)} {spoken.over} {defaults}{_rates_text(study, advice, finals)}"
        text += unseen if advice.deployment.env else ""
        return Answer(code=code, word=spoken.better, text=text, setting=words)
    against = advice.together or by_name.get(study.default)
    if advice.source != study.default:  # the default breaks a limit
        figure = "" if gain is None or gain.speedup is None else f"; {speed_up(gain)} the {quantity} of {defaults}"
        return Answer(code=VerdictCode.BETTER, word="USE", text=f"{of}: {advice.reason}{figure}", setting=words)
    if against is None or against.speedup is None:
        text = f"{of}: keep {defaults}; no estimate"
        return Answer(code=VerdictCode.UNDECIDED, word="UNDECIDED", text=text)
    interval = range_text(against)
    if against.code is VerdictCode.NO_DIFFERENCE and observation(study, Code.NO_SEARCH):
        text = f"{of}: the guides' settings run at {interval} the {quantity} of {defaults}; no other setting was tried"
        return Answer(code=against.code, word="NO DIFFERENCE", text=text + unseen + _untried_batches(study))
    if against.code is VerdictCode.NO_DIFFERENCE:
        start = "no setting made a difference" if unseen else "nothing to set"
        text = f"{of}: {start}; the best other setting runs at {interval} the {quantity} of {defaults}{unseen}"
        return Answer(code=against.code, word="NO DIFFERENCE", text=text + _untried_batches(study))
    if against.code is VerdictCode.UNDECIDED:
        text = f"{of}: keep {defaults} for now; the best other setting runs at {interval} their {quantity}{unseen}"
        return Answer(code=against.code, word="UNDECIDED", text=text + _untried_batches(study))
    if against.code is VerdictCode.WORSE:
        text = f"{of}: keep {defaults}; the best other setting {spoken.is_worse}, {speed_up(against)}"
        return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=text + _untried_batches(study))
    return Answer(code=VerdictCode.NO_DIFFERENCE, word="KEEP", text=f"{of}: {advice.reason}")


def _untried_batches(study: StudyResult) -> str:
    """Return which batch sizes were asked for and had no trial, "" if all had one."""
    tried = {trial.setting[_BATCH_SIZE] for trial in study.history}
    sizes = [str(size) for size in study.batch_sizes or () if size not in tried]
    *others, last = sizes or [""]
    were = f"sizes {', '.join(others)} and {last} were" if others else f"size {last} was"
    return f"; batch {were} not tried" if sizes else ""


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
        words.append(processes_text(deployment))
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
        deployment = replace(deployment, arguments=other_values(deployment.arguments, study))
    framework = study.framework
    ways = Ways(session=framework.session_code, server_flags=framework.server_flags, calls=framework.calls)
    return emit(
        deployment,
        format_,
        title=title,
        facts=_facts(study, advice),
        ways=ways,
        # For the defaults, too: they take their threads from the CPUs that they see.
        machine=_measured_machine(study, deployment),
        better=better,
        whole=whole,
        model=study.workload.name,
        memory_bytes=None if model else _process_bytes(study, advice, load),
        batching=batching(study, advice, load),
    )


def _tails(study: StudyResult, advice: RecommendedResult) -> tuple[TailResult | None, TailResult | None]:
    """Return what the finals saw of the advice and of the default, None where they did not."""
    own = [each.finals for each in study.answers.values() if each.recommended is advice]
    finals = own[0] if own else study.finals
    if finals is None:
        return None, None
    tails = {name: finals.tails.get(first) for first, names in finals.names.items() for name in names}
    return tails.get(advice.source), tails.get(study.default)


def _process_bytes(study: StudyResult, advice: RecommendedResult, load: LoadResult | None) -> float | None:
    """Return the most memory that a process of the advice was seen to hold, None where that is not known.

    Several hold their libraries in common, which counts once. So one alone is not taken to need less than the default.
    """
    # A GPU's memory is counted there, not the host's; and of a command only the largest process is seen.
    if "index" in study.device or study.objective.is_of_command:
        return None
    own, default = (None if tail is None else tail.peak_memory_bytes for tail in _tails(study, advice))
    curve = _curve(advice, load)
    peaks = [peak for peak in (own, None if curve is None else curve.peak_memory_bytes) if peak is not None]
    n = advice.deployment.processes
    return max(max(peaks) / n, 0 if n == 1 else default or 0) if peaks else None


def batching(study: StudyResult, advice: RecommendedResult, load: LoadResult | None) -> Batching | None:
    """Return how a server makes batches as they were measured, None where the workload has none.

    Under load with a limit these are the batches that carry most within it, else those of the size in the finals. With
    a limit no more batches wait than it leaves time for. Calls of --rate wait already.
    """
    threads, n_processes = advice.deployment.streams, advice.deployment.processes
    # The answer at the same latency has batches of its own: those that carry most take longer.
    is_short = study.same_latency is not None and advice is study.same_latency.recommended
    curve = None if is_short else _curve(advice, load)
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
        measured_cpus=CpuLimit.of(_measured_machine(study, advice.deployment)).busy_cpus,
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
        sessions = sessions_words(advice.gain)
        quantity = wording(study.objective).quantity
        gained = f"{speed_up(advice.gain)} the {quantity} of the defaults ({study.workload.name}, {sessions})"
        unseen = observation(study, Code.UNSEEN) if advice.deployment.env else ""
        gained += f"; {unseen}" if unseen else ""
    wrong_way = observation(study, Code.WRONG_WAY)
    gained += f"; {wrong_way}" if wrong_way else ""
    against = (study.verdicts or {}).get(study.default)
    is_open = against is not None and against.code is VerdictCode.UNDECIDED
    if advice is study.recommended and advice.gain is None and is_open:
        gained += "; undecided: another setting may be better"
    limits = [] if advice.limits is None else [f"limits {advice.limits}"]
    when = [] if study.created is None else [study.created[:10]]
    batch_size = study.baselines[study.default].setting.get(_BATCH_SIZE)
    is_same = batch_size is not None and advice.setting.get(_BATCH_SIZE) == batch_size
    batch = [f"batch size {batch_size}"] if is_same else []
    return [", ".join([gained, *when]), "; ".join([f"Measured on {where(study)}", *batch, *limits])]


def _titled(title: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield rows of one title, which stands before the first of them."""
    yield from (("" if i else title, text) for i, text in enumerate(texts))


def _reasons(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield why each answer is what it is."""
    yield from _titled("Why", (f"{of_text(study, name)}{_why(study, each)}" for name, each in study.answers.items()))


def _prices(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield what a call takes under each setting that is recommended, beside the default."""
    own = {of: each.recommended for of, each in study.answers.items() if each.recommended.source != ONE_PROCESS}
    prices = {of_text(study, of): each.latency for of, each in own.items() if each.latency is not None}
    texts = [f"{of}{_price_text(price)}" for of, price in prices.items()]
    if study.same_latency is None and any(price.low > MUCH_LONGER for price in prices.values()):
        if study.why_no_same_latency is None:
            texts[-1] += "; the shortest call is another search: --objective latency"
        else:
            texts.append(f"{AT_SAME_LATENCY}: {study.why_no_same_latency}")
    yield from _titled("Latency", texts)


def _same_batch(study: StudyResult, advice: RecommendedResult) -> Iterator[tuple[str, str]]:
    """Yield what is gained beside the default at the batch size of the answer, where that is another."""
    name = study.default + SAME_BATCH
    verdict = (study.verdicts or {}).get(name)
    if advice.source != INCUMBENT or verdict is None or verdict.low is None:
        return
    batch_size, quantity = advice.setting[_BATCH_SIZE], wording(study.objective).quantity
    yield "Threads", f"{range_text(verdict)} the {quantity} of the default threads, both at batch size {batch_size}"


def _price_text(price: LatencyResult) -> str:
    """Return how much longer a call takes, how long, and the memory of all processes."""
    before, after = price.before, price.after
    size = "" if before.items == after.items else f" of {plural(after.items, 'item')} instead of {before.items}"
    parts = [f"a call{size} takes {ratio_text(price.ratio, price.low, price.high)} times as long"]
    for name, *ms in (("p50", before.p50_ms, after.p50_ms), ("p99", before.p99_ms, after.p99_ms)):
        parts += [f"{name} {ms_text(ms[0])} → {ms_text(ms[1])} ms"] if None not in ms else []
    if before.peak_memory_bytes is not None and after.peak_memory_bytes is not None:
        parts.append(f"memory {before.peak_memory_bytes / 2**30:.2f} → {gib_text(after.peak_memory_bytes)}")
    return "; ".join(parts)


def _why(study: StudyResult, answer: AnswerResult) -> str:
    """Return why this is recommended."""
    advice, finals, verdicts = answer.recommended, answer.finals, answer.verdicts
    is_gain = advice.gain is not None and advice.gain.code is VerdictCode.BETTER
    if advice.limits is LimitStatus.BROKEN or (advice.source != study.default and not is_gain):
        return advice.reason
    if advice.source in (ONE_PROCESS, SAME_LATENCY):
        return advice.reason
    if advice.source == study.default:
        against = verdicts.get(study.default)
        if against is not None and against.code is VerdictCode.BETTER:  # it is, and may not be recommended
            return advice.reason
        if advice.gain is None and advice.together is not None and advice.together.sessions > 1:
            return advice.reason
        few_digits, spoken = observation(study, Code.FEW_DIGITS), wording(study.objective)
        return _why_default(advice, against, finals, spoken, few_digits)
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
        return f"it was {best} setting in the finals"
    names = " and ".join(" ".join(finals.names[first]) for first in ahead)
    return f"{best} setting that is proven better than the defaults; perhaps better still, but not proven: {names}"


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
        return f"{plural(finals.rounds, 'round')} cannot decide; the other setting is {rival}"
    return f"no setting was shown {spoken.more_than.format(margin=margin)}"


def _same_as(study: StudyResult, finals: FinalsResult, source: str) -> list[str]:
    """Return the recommended settings that are the same as what is recommended here."""
    own = {INCUMBENT, GROUP, SIMPLER, ONE_PROCESS, SAME_LATENCY}
    names = next((names for names in finals.names.values() if source in names), ())
    return [name for name in names if name in study.baselines and name not in own]


def _proof(study: StudyResult, advice: RecommendedResult) -> str:
    """Return what the answer rests on."""
    n = study.trials.ok + study.trials.pruned
    of = {ONE: "", SEVERAL: " with several at once", AT_SAME_LATENCY: " at the same latency"}
    rounds = {name: each.finals.rounds for name, each in study.answers.items()}
    others = "".join(f", {rounds[name]}{words}" for name, words in of.items() if words and name in rounds)
    together, sessions = advice.together, plural(1, "session")
    if together is not None:
        sessions = sessions_words(together) + disagreement(together)
    return (
        f"{plural(n, 'setting')} measured in turns with the default; then {plural(rounds[ONE], 'round')} of new "
        f"processes{others}; {sessions}"
    )


def where(study: StudyResult) -> str:
    """Return what a result is valid for: cores, limit and build, and how the workload has changed the cores."""
    pinned = observation(study, Code.PINNED)
    return f"{place_text(study)}, {build_text(study)}" + (f"; {pinned}" if pinned else "")


def _measured_machine(study: StudyResult, deployment: Deployment) -> Machine:
    """Return the machine of a study, with no more CPUs than a workload that pins its process has used."""
    used = cpus_pinned(observation(study, Code.PINNED)) if deployment.processes == 1 else None
    if used is None or len(parse_list(used)) >= study.machine.logical_cpus:
        return study.machine
    return replace(study.machine, affinity=used, logical_cpus=len(parse_list(used)))


def to_set(study: StudyResult) -> dict[str, RecommendedResult]:
    """Return the answers that there is something to set for, by what they are of."""
    known: dict[str, RecommendedResult] = {}
    advices = {of: answer.recommended for of, answer in study.answers.items()}
    if study.finals is None and study.recommended is not None:  # which load tests have chosen
        advices[ONE] = study.recommended
    for of, advice in advices.items():
        is_default = bool(advice.deployment.members) and advice.source == study.default  # an ensemble's has members
        if advice.deployment and not is_default and (of != SEVERAL or advice.deployment.processes > 1):
            known[of] = advice
    return known


def _next_steps(study: StudyResult, of_study: str) -> Iterator[tuple[str, str]]:
    """Yield the commands that come next, for each answer that there is something to set for."""
    known, emits, runs = to_set(study), [], []
    for of, advice in known.items():
        deployment, words = advice.deployment, f"{of_study}{OPTIONS[of]}"
        is_ensemble, is_several = bool(deployment.members), deployment.processes > 1
        python = " --format python" if deployment.options and (of == ONE or not is_several) else ""
        emits.append(f"tftune emit {words}{' --format compose' if is_ensemble else python}")
        port = f" --port {_PORT}" if is_several else ""
        runs.append(f"tftune run {words} -- python serve.py{' {model}' if is_ensemble else port}")
        formats = "sh, compose, or --json; with --model NAME all" if is_ensemble else _formats(study)
    yield from _titled("Apply", emits)
    if known:
        yield "", f"--format {formats}"
    yield from _titled("Run", runs)
    if study.objective is Objective.CAPACITY:
        yield "Check", f"tftune load {of_study}"
    gained = [of for of, each in study.answers.items() if each.recommended.gain and (of == ONE or of in known)]
    yield from _titled("Check", (f"tftune check {of_study}{OPTIONS[of]}" for of in gained))
    yield "More", f"tftune report {of_study} --open"


def _formats(study: StudyResult) -> str:
    """Return the formats of a snippet, those of the framework's own server among them."""
    left_out = {Format.JSON} if study.framework.server_flags else {Format.JSON, *SERVING}
    return f"{', '.join(each for each in Format if each not in left_out)}, or --json"


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
