"""The JSON document of a study, built from its record; all reports are rendered from it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import UNSET, structs

from tuner.errors import BadInputError
from tuner.measure.objective import Objective
from tuner.measure.rates import adjusted_rates, failures
from tuner.measure.recommendation import FinalsEstimates, all_verdicts
from tuner.measure.rounds import SAME_BATCH, SAME_LATENCY, Contender
from tuner.measure.warning import MeasurementWarning, merge
from tuner.model.graph import Features
from tuner.result import evidence, fields_of
from tuner.result.decision import StudyRecommendation, deployment_of, recommend_study
from tuner.result.load import capacity_advice, load_of
from tuner.result.study import (
    AT_SAME_LATENCY,
    ONE,
    SEVERAL,
    AdviceResult,
    AnswerResult,
    CallResult,
    CountsResult,
    ExpectationResult,
    FinalsResult,
    IncumbentResult,
    LatencyResult,
    PlannedResult,
    RecommendedResult,
    StudyLine,
    StudyResult,
    TailResult,
    TrialResult,
    VerdictResult,
    WarningResult,
    applied,
)
from tuner.result.wording import cores_text
from tuner.space.groups import INSTANCES, in_flight
from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.stats.equivalence import Verdict
from tuner.stats.estimate import Estimate, rank_correlation
from tuner.stats.tail import LimitStatus, p99
from tuner.study.attributes import Attributes, Prediction, StoredFinals
from tuner.study.history import incumbent
from tuner.study.record import Record
from tuner.study.subject import Subject
from tuner.study.surrogate import posterior_means
from tuner.study.trials import Trial
from tuner.trial.outcome import Status
from tuner.workload.command import placeholders
from tuner.workload.spec import WorkloadSpec

_LEAST_RANKED = 5  # settings, of which an order says something
_WITH_A_PRICE = (Objective.THROUGHPUT, Objective.ENERGY)  # what is paid for with longer calls


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinalsVerdicts:
    """Finals that were held, and what they say."""

    stored: StoredFinals
    estimates: FinalsEstimates
    verdicts: Mapping[str, Verdict]
    limit_statuses: Mapping[str, LimitStatus]
    decision: StudyRecommendation
    in_words: Collection[str]


def describe_study(record: Record) -> StudyResult:
    """Return all that is published of a study; raises BadInputError where it cannot be read."""
    record = record.snapshot()
    stored, trials, groups_tried = record.attributes(), record.trials(), record.groups()
    subject, objective, noise, process_sd = stored.subject, stored.objective, stored.noise, stored.process_sd
    finals_verdicts = _finals_verdicts(stored, stored.finals)
    groups = _finals_verdicts(stored, stored.group_finals)
    same_latency = _finals_verdicts(stored, stored.latency_finals)
    answer = _answer(finals_verdicts, objective, subject.default)
    shrinkage, recommended = None, None
    if finals_verdicts is not None:
        shrinkage = evidence.shrinkage(trials, finals_verdicts.estimates, finals_verdicts.verdicts, subject.default)
    elif objective is Objective.CAPACITY and (load := load_of(record)) is not None:
        recommended = capacity_advice(load, stored.limits)
    last = stored.runs[-1] if stored.runs else None
    in_order = sorted([*trials, *groups_tried], key=lambda trial: trial.number)
    history = tuple(trial_result(trial, process_sd) for trial in in_order)
    return StudyResult(
        **structs.asdict(subject),
        study=record.name,
        created=stored.created,
        command=stored.get("command", str),
        objective=objective,
        seed=stored.seed,
        trials=_count(in_order),
        history=history,
        features=stored.get("features", Features),
        hints=stored.hints,
        expectation=expectation_of(stored.prediction, trials, lambda trial: _ratio(trial, process_sd)),
        noise=None if noise is None else evidence.noise_result(noise, evidence.floor_of(noise, trials)),
        conditions=stored.conditions[-1] if stored.conditions else None,
        may_change_numerics=stored.numerics == "may-change",
        pins=stored.pins or UNSET,
        batch_sizes=tuple(stored.batch_sizes) or UNSET,
        why_no_energy=stored.why_no_energy,
        incumbent=_incumbent(record, stored, trials),
        verdicts=None if answer is None else answer.verdicts,
        recommended=recommended if answer is None else answer.recommended,
        shrinkage=shrinkage,
        warnings=_warnings(stored, [*trials, *groups_tried], finals_verdicts, [same_latency, groups]),
        groups=_answer(groups, objective, subject.default),
        same_latency=_answer(same_latency, objective, subject.default),
        why_no_same_latency=None if same_latency is not None else stored.why_no_same_latency,
        limits=stored.limits,
        finals=None if answer is None else answer.finals,
        ended_because=None if last is None else last.ended_because,
        planned=_planned(history, stored) if stored.planned else None,
        search_timed_share=None if last is None else last.search_timed_share,
        wall_s=None if last is None else last.wall_s,
        measured_s=None if last is None else last.measured_s,
    )


def advice_of(study: StudyResult, *, groups: bool | None = False, same_latency: bool = False) -> RecommendedResult:
    """Return what a study recommends, of `groups` if several processes may run; raises BadInputError without finals.

    Where several are not shown to be better than the default, that is what is best of one process. With None it is the
    first answer that there is anything to set for. With `same_latency`, and None, it is what keeps that of the default.
    """
    if same_latency:
        return answer_of(study, groups=groups, same_latency=True).recommended
    groups = several_come_first(study) if groups is None else groups
    knob = study.knobs.get(INSTANCES)
    is_capacity = study.objective is Objective.CAPACITY  # it has one answer, on several processes if they carry more
    if groups and study.groups is None and not is_capacity and (knob is None or not knob.active):
        raise no_groups(study)
    if study.recommended is None:
        raise no_finals(study)
    if groups and study.groups is not None:
        several = study.groups.recommended
        return study.recommended if several.gain is None and study.recommended.gain is not None else several
    return study.recommended


def answer_of(study: StudyResult, *, groups: bool | None, same_latency: bool) -> AnswerResult:
    """Return one answer of a study, as `advice_of` is asked for it; raises BadInputError where there is none."""
    answers = study.answers
    if not same_latency:
        of = SEVERAL if (several_come_first(study) if groups is None else groups) else ONE
    elif groups is not None:
        raise BadInputError("--same-latency is an answer of its own", "leave out --instances, or --same-latency")
    elif not answers and study.recommended is None:
        raise no_finals(study)
    else:  # another answer may keep it
        short = [each.recommended for each in answers.values()]
        short = [each for each in short if each.latency is not None and each.latency.low <= 1]
        fastest = max(short, key=lambda each: 0.0 if each.gain is None else each.gain.speedup or 0.0, default=None)
        keeping = (of for of, each in answers.items() if each.recommended is fastest)
        of = AT_SAME_LATENCY if study.same_latency is not None else next(keeping, AT_SAME_LATENCY)
    if of not in answers:
        raise {ONE: no_finals(study), SEVERAL: no_groups(study), AT_SAME_LATENCY: _no_same_latency(study)}[of]
    return answers[of]


def _no_same_latency(study: StudyResult) -> BadInputError:
    """Return the error for a study that knows no faster setting which keeps the latency."""
    why = study.why_no_same_latency
    if why is None:
        why = "only a search without --objective looks for one, if a call of the fastest takes much longer"
    return BadInputError(
        f"study {study.study} has no faster setting at the latency of {study.default}: {why}",
        f"`tftune show {shlex.quote(study.study)}` has what it recommends",
    )


def several_come_first(study: StudyResult) -> bool:
    """Return whether there is something to set for several processes alone: one process keeps the defaults."""
    is_one_set = study.recommended is not None and bool(study.recommended.deployment)
    return study.groups is not None and study.groups.recommended.deployment.processes > 1 and not is_one_set


def no_groups(study: StudyResult) -> BadInputError:
    """Return the error for a study that says nothing of several processes."""
    tried = [trial for trial in study.history if trial.is_group]
    if study.planned is not None:
        return no_finals(study)
    if not tried:
        return BadInputError(
            f"study {study.study} has not compared several processes",
            "a search does that for the inference of one model on two cores or more, without --one-process",
        )
    reasons = {"they break a limit" if trial.over_limit else trial.message or "there was no time" for trial in tried}
    return BadInputError(
        f"study {study.study} has no answer on several processes: {'; '.join(sorted(reasons))}",
        f"`tftune show {shlex.quote(study.study)} --details` lists them",
    )


def no_finals(study: StudyResult) -> BadInputError:
    """Return the error for a study that recommends nothing yet, or never will."""
    if study.planned is not None:
        hint = f"a search proves a setting: {study.planned.search}"
        return BadInputError(f"study {study.study} has planned measurements, and recommends nothing", hint)
    return BadInputError(f"study {study.study} has no finals yet", "run its search again to continue it")


def describe_line(record: Record) -> StudyLine:
    """Return the little that a list of studies shows of one."""
    stored = record.attributes()
    subject = stored.subject
    verdict, setting = _told(stored, stored.finals)
    groups, groups_setting = _told(stored, stored.group_finals)
    same_latency, same_latency_setting = _told(stored, stored.latency_finals)
    if stored.objective is Objective.CAPACITY and (load := load_of(record)) is not None:
        advice, others = capacity_advice(load, stored.limits), [each.against_default for each in load.curves[1:]]
        known = [each for each in others if each is not None and each.speedup is not None]
        verdict = advice.gain or max(known, key=lambda each: each.speedup or 0.0, default=None)
        setting = other_values(advice.setting if advice.deployment else {}, subject)
    return StudyLine(
        study=record.name,
        machine=subject.machine.id,
        cores=cores_text(subject.machine),
        build=subject.framework.build_lines(subject.runtime)[0],
        workload=subject.workload.name,
        mode=subject.workload.mode,
        trials=len(record.trials()) + len(record.groups()),
        verdict=verdict,
        setting=setting,
        groups=groups,
        groups_setting=groups_setting,
        same_latency=same_latency,
        same_latency_setting=same_latency_setting,
        planned=stored.planned,
        created=stored.created,
        updated=stored.updated,
    )


def _told(stored: Attributes, finals: StoredFinals | None) -> tuple[VerdictResult | None, dict[str, Value] | None]:
    """Return the verdict of finals against the default, and what of the recommended setting differs from it."""
    held, subject = _finals_verdicts(stored, finals), stored.subject
    if held is None:
        return None, None
    against = held.verdicts.get(subject.default)
    verdict = held.decision.gain or (None if against is None else VerdictResult.of(against))
    return verdict, other_values(held.decision.chosen.setting.to_dict(), subject)


def other_values(setting: Mapping[str, Value], subject: Subject) -> dict[str, Value]:
    """Return what of a setting differs from the default."""
    default = subject.baselines[subject.default].setting
    return {name: value for name, value in setting.items() if default.get(name) != value}


def _finals_verdicts(stored: Attributes, stored_finals: StoredFinals | None) -> _FinalsVerdicts | None:
    """Return finals of a study with what they say, None where there are none yet."""
    if stored_finals is None:
        return None
    estimates = stored_finals.estimates(stored.objective)
    verdicts = all_verdicts(estimates)
    limit_statuses = evidence.limit_statuses(stored_finals.rounds, estimates.names, stored.limits)
    broken = [name for name, answer in limit_statuses.items() if answer is LimitStatus.BROKEN]
    if limit_statuses.get(estimates.incumbent) is LimitStatus.MET:
        # A simpler rival of which that is not known, for it ran in few rounds, does not take the incumbent's place.
        rivals = [each.names[0] for each in estimates.contenders if stored.subject.default not in each.names]
        broken += [name for name in rivals if limit_statuses.get(name) is LimitStatus.UNKNOWN]
    is_longer = False
    if estimates.incumbent == SAME_LATENCY:
        price = _price(stored_finals, *estimates.contenders[:2])
        is_longer = price is not None and price.interval()[0] > 1
        broken += [SAME_LATENCY] if is_longer else []
    decision = recommend_study(stored, estimates, verdicts, broken=broken)
    if is_longer:
        reason = f"keep {stored.subject.default}: in the finals a call of the fastest other setting takes longer"
        decision = replace(decision, reason=reason)
    return _FinalsVerdicts(
        stored=stored_finals,
        estimates=estimates,
        verdicts=verdicts,
        limit_statuses=limit_statuses if stored.limits else {},
        decision=decision,
        in_words=_knobs_in_words(stored),
    )


def _words_of(stored: Attributes) -> set[str]:
    """Return the names in braces among the words of a study's command."""
    return set() if stored.spec.metric_regex is None else placeholders(stored.spec.words)


def _knobs_in_words(stored: Attributes) -> set[str]:
    """Return the knobs with a variable that a study's command has among its words: the variable may not arrive."""
    return stored.subject.catalogue.by_variable() & _words_of(stored)


def _answer(verdicts: _FinalsVerdicts | None, objective: Objective, default: str) -> AnswerResult | None:
    """Return the answer that finals give, None where none were held."""
    if verdicts is None:
        return None
    held = _finals(verdicts, objective, default)
    return AnswerResult(
        finals=held,
        verdicts={name: VerdictResult.of(each) for name, each in verdicts.verdicts.items()},
        recommended=_recommended(verdicts, held, objective, default),
    )


def _count(trials: Sequence[Trial]) -> CountsResult:
    ok = sum(1 for t in trials if t.status is Status.OK and not t.pruned)
    pruned = sum(1 for t in trials if t.pruned)
    kinds = {s: sum(1 for t in trials if t.status is s) for s in Status if s is not Status.OK}
    return CountsResult(
        ok=ok, failed=len(trials) - ok - pruned, pruned=pruned, kinds={k: n for k, n in kinds.items() if n}
    )


def _ratio(trial: Trial, process_sd: float) -> dict[str, float | None]:
    """Return a trial's ratio to its reference, with the interval of the setting rather than of these two processes.

    Each of the two has its process effect, which more blocks do not reduce: of the intervals of 213 pairs of the
    default with itself, 88 % included 1 without it.
    """
    estimate = trial.known(process_sd)
    if estimate is None:
        return {"ratio": None, "low": None, "high": None}
    low, high = estimate.interval()
    return {"ratio": estimate.ratio, "low": low, "high": high if math.isfinite(high) else None}


def trial_result(trial: Trial, process_sd: float) -> TrialResult:
    """Return what is published of a trial; `process_sd` is σ_p (log scale)."""
    return TrialResult(
        **fields_of(TrialResult, trial)
        | _ratio(trial, process_sd)
        | {
            "setting": trial.setting.to_dict(),
            "message": trial.reason,
            "timed_s": round(trial.timed_s, 3),
            "p99_ms": 1000 * p99(trial.step_s) if trial.step_s else None,
            "energy_j": trial.energy_j_per_item,
            "warm_up_settled": trial.settled,
        }
    )


def _planned(history: Sequence[TrialResult], stored: Attributes) -> PlannedResult:
    """Return what planned measurements came to."""
    default = Setting.of(stored.subject.baselines[stored.subject.default].setting)
    known = [each for each in history if each.ratio is not None]
    others = [each for each in known if each.low != each.high]  # the default's own ratio is 1 by definition
    at_own = [each for each in others if Setting.of(each.setting).batch_size == default.batch_size]
    best = max(at_own, key=lambda each: each.ratio or 0.0, default=None)
    longer = None
    if best is not None and best.ratio:
        longer = in_flight(Setting.of(best.setting)) / in_flight(default) / best.ratio
    ends = [(each.low, each.high) for each in others if each.low and each.high]
    workload = stored.subject.workload
    spec = stored.spec if stored.spec.words else WorkloadSpec.of_name(workload.name, mode=workload.mode)  # of a survey
    return PlannedResult(
        settings=len(known),
        complete=stored.is_complete,
        best=None if best is None else best.setting,
        call=longer,
        wall_s=sum(run.wall_s for run in stored.runs),
        search=f"tftune search {spec.command_line}",
        width=float(np.median([math.log(high / low) / 2 for low, high in ends])) if ends else None,
        **{name: getattr(best, name, None) for name in ("ratio", "low", "high")},
    )


def _incumbent(record: Record, stored: Attributes, trials: Sequence[Trial]) -> IncumbentResult | None:
    """Return the incumbent as the search itself chose it: by the posterior mean, or for capacity as it has kept it."""
    process_sd = stored.process_sd
    if stored.objective is Objective.CAPACITY:
        chosen = [each.setting for each in stored.promising[:1]]
        best = next((trial for trial in [*trials, *record.groups()] if trial.setting in chosen), None)
    elif stored.runs and stored.runs[-1].n_trials == len(trials):
        best = next((trial for trial in trials if trial.number == stored.runs[-1].incumbent), None)
    else:  # it was killed, or an earlier version ran
        choices = record.choices()
        additive = stored.subject.catalogue.additive(choices)
        best = incumbent(trials, posterior_means(trials, choices, process_sd=process_sd, additive=additive))
    return None if best is None else IncumbentResult(setting=best.setting.to_dict(), **_ratio(best, process_sd))


def _warnings(
    stored: Attributes,
    trials: Sequence[Trial],
    verdicts: _FinalsVerdicts | None,
    others: Sequence[_FinalsVerdicts | None],
) -> tuple[WarningResult, ...]:
    """Return all warnings, those on the finals of other answers before those of one process."""
    warnings = merge(evidence.study_warnings(stored, trials), unseen_variables(stored, trials, verdicts))
    for held in (*others, verdicts):
        if held is None:
            continue
        rounds = held.stored.rounds
        chosen, limits = held.decision.chosen.names[0], stored.limits
        warnings = merge(
            warnings,
            evidence.round_warnings(rounds, decided=held.stored.ended == "decided"),
            evidence.number_warnings(rounds, stored.objective, {trial.setting.batch_size for trial in trials}),
            evidence.growing_warnings(rounds),
            evidence.step_warnings(len(evidence.steps_of(rounds, chosen)), stored.objective, limits),
            evidence.limit_warnings(held.limit_statuses.get(chosen, LimitStatus.UNKNOWN), limits) if limits else [],
        )
        warnings = evidence.settled(warnings, rounds, stored.objective)
    advice = {**stored.subject.device_advice, **stored.subject.framework.advice}
    if any(f"{{{name}}}" in advice.get("unseen", "") for name in _words_of(stored)):
        del advice["unseen"]
    return tuple(WarningResult.of(warning, advice) for warning in warnings)


def unseen_variables(
    stored: Attributes, trials: Sequence[Trial], verdicts: _FinalsVerdicts | None
) -> list[MeasurementWarning]:
    """Return a warning where nothing shows that the variables reach the program of a command."""
    default = Setting.of(stored.subject.baselines[stored.subject.default].setting)
    variables = stored.subject.catalogue.by_variable(_words_of(stored))
    if all(default.taking(variables, trial.setting) == default for trial in trials):
        return []
    return evidence.unseen_warnings(
        list(_compared(stored, trials, verdicts, variables)),
        stored.subject.catalogue.n_threads(default),
        stored.objective,
        at=evidence.common_text(default, (trial.setting.taking(variables, default) for trial in trials)),
    )


def _compared(
    stored: Attributes, trials: Sequence[Trial], verdicts: _FinalsVerdicts | None, variables: Collection[str]
) -> Iterator[tuple[int, Estimate]]:
    """Yield the threads of each setting that differs from another in variables alone, and its log-ratio to that.

    That is the default if it has the rest of the default. A batch size reaches a command among its words.
    """
    default = stored.subject.default
    usual = Setting.of(stored.subject.baselines[default].setting)

    def rest(setting: Setting) -> Setting:
        return setting.taking(variables, usual)

    def n_threads(setting: Setting) -> int:
        return stored.subject.catalogue.n_threads(usual.taking(variables, setting))

    first: dict[Setting, Trial] = {}
    for trial in trials:
        if trial.estimate is None or default in trial.baselines:
            continue
        is_usual = rest(trial.setting) == usual
        other = first.setdefault(rest(trial.setting), trial)
        ratio = trial.estimate if is_usual else trial.difference(other, stored.process_sd)
        if ratio is not None and (is_usual or trial.setting != other.setting):
            yield n_threads(trial.setting), ratio
    if verdicts is None:
        return
    estimates = verdicts.estimates
    for reference in estimates.contenders:
        if default not in {name.removesuffix(SAME_BATCH) for name in reference.names}:
            continue
        for contender in estimates.contenders:
            is_other = contender.names[0] != reference.names[0]
            if is_other and rest(contender.setting) == rest(reference.setting):
                ratio = estimates.log_ratio(reference.names[0], contender.names[0])
                if ratio is not None:
                    yield n_threads(contender.setting), ratio


def _recommended(
    verdicts: _FinalsVerdicts, held: FinalsResult, objective: Objective, default: str
) -> RecommendedResult:
    decision = verdicts.decision
    chosen, advice = decision.chosen, decision.advice
    return RecommendedResult(
        source=advice.source,
        setting=chosen.setting.to_dict(),
        **applied(deployment_of(advice.source, chosen, default=default, in_words=verdicts.in_words)),
        reason=decision.reason,
        alike=advice.tied,
        gain=None if advice.gain is None else decision.gain,
        together=decision.gain,
        sessions=tuple(session.result() for session in decision.sessions),
        limits=verdicts.limit_statuses.get(chosen.names[0]),
        latency=_latency(verdicts, held.tails, default) if objective in _WITH_A_PRICE else None,
    )


def _latency(verdicts: _FinalsVerdicts, tails: Mapping[str, TailResult], default: str) -> LatencyResult | None:
    """Return what a call takes under the default and under the recommended setting; None if that is the default."""
    after = verdicts.decision.chosen
    before = next((each for each in verdicts.estimates.contenders if default in each.names), None)
    if before is None or before.names[0] == after.names[0]:
        return None
    ratio = _price(verdicts.stored, after, before)
    if ratio is None:
        return None
    low, high = ratio.interval()
    return LatencyResult(
        before=_call(tails, before),
        after=_call(tails, after),
        ratio=ratio.ratio,
        low=low,
        high=high if math.isfinite(high) else None,
    )


def _price(stored_finals: StoredFinals, after: Contender, before: Contender) -> Estimate | None:
    """Return how many times as long a call takes (log) under one contender as under another, by the median."""
    # The rate of a latency is its inverse.
    return stored_finals.estimates(Objective.LATENCY).log_ratio(after.names[0], before.names[0])


def _call(tails: Mapping[str, TailResult], contender: Contender) -> CallResult:
    """Return what a call of a contender takes."""
    tail = tails[contender.names[0]]
    return CallResult(
        items=_items(contender), p50_ms=tail.p50, p99_ms=tail.p99, peak_memory_bytes=tail.peak_memory_bytes
    )


def _items(contender: Contender) -> int:
    """Return the number of items in a call of a contender."""
    return contender.deployment.shared_batch or contender.setting.batch_size


def _finals(verdicts: _FinalsVerdicts, objective: Objective, default: str) -> FinalsResult:
    held, estimates, decision = verdicts.stored, verdicts.estimates, verdicts.decision
    contenders, names, first = estimates.contenders, estimates.names, estimates.incumbent
    rates = adjusted_rates(names, estimates.y, first)
    items = {c.names[0]: _items(c) for c in contenders}
    return FinalsResult(
        advice=AdviceResult(
            source=decision.tried_as,
            setting=decision.tried.setting.to_dict(),
            **applied(deployment_of(decision.tried_as, decision.tried, default=default, in_words=verdicts.in_words)),
        ),
        rounds=len(estimates.y),
        fresh_rounds=sum(r.fresh for r in held.rounds if not r.interruptions),
        ended=held.ended,
        incumbent=next(c for c in contenders if first in c.names).setting.to_dict(),
        default=next((c.setting.to_dict() for c in contenders if default in c.names), None),
        margin=estimates.margin,
        levels=dict(estimates.levels),
        unit=evidence.unit_of(held.rounds, objective),
        rates={name: objective.shown(rate) for name, rate in rates.items()},
        tails={name: evidence.tail(held.rounds, name, items[name]) for name in names},
        kept=dict(verdicts.limit_statuses),
        names={c.names[0]: c.names for c in contenders},
        failures=failures(held.rounds),
        timed_s=round(sum(r.timed_s for r in held.rounds), 3),
    )


def expectation_of(
    prediction: Prediction | None, trials: Sequence[Trial], ratio_of: Callable[[Trial], Mapping[str, float | None]]
) -> ExpectationResult | None:
    """Return how right the model was, None where none was asked; `ratio_of` is what is published of a trial's ratio."""
    if prediction is None:
        return None
    measured = {trial.number: estimate.mean for trial in trials if (estimate := trial.estimate) is not None}
    both = [(log_ratio, measured[number]) for number, log_ratio in prediction.log_ratios if number in measured]
    own = next((trial for trial in trials if trial.setting.to_dict() == prediction.best), None)
    ratio = {} if own is None else ratio_of(own)
    predicted_values, measured_values = np.array(both).reshape(-1, 2).T
    return ExpectationResult(
        setting=prediction.best,
        predicted=math.exp(prediction.best_log_ratio),
        status=None if own is None else own.status,
        ratio=ratio.get("ratio"),
        low=ratio.get("low"),
        high=ratio.get("high"),
        rank_correlation=rank_correlation(predicted_values, measured_values) if len(both) >= _LEAST_RANKED else None,
        settings=len(both),
        trust=prediction.trust,
    )
