"""Evidence: what stored studies say of settings, and which of them cannot be learned from, and why."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tuner.devices import registry as devices
from tuner.devices.device import HOST
from tuner.errors import BadInputError
from tuner.machine.host import Machine, host_of
from tuner.measure.group_sequential import MIN_ROUNDS
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, process_sds
from tuner.measure.rates import log_rates
from tuner.measure.recommendation import MUCH_LONGER
from tuner.model.graph import Features
from tuner.rules.recipe import BATCH, BINDING, FRAMEWORK, OF_A_DEVICE, ONEDNN, POOLS, Recipe, speaks_of
from tuner.rules.situation import Situation, of_study
from tuner.rules.strata import SituationKind
from tuner.rules.surface import FINALS, Measured, ResponseSurface
from tuner.space.common import STREAMS
from tuner.space.groups import INSTANCES, groups, is_group
from tuner.space.setting import Setting
from tuner.space.term import COMPACT
from tuner.space.values import Value
from tuner.stats.moderation import moderated_estimate
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.study.attributes import MEASURED, Attributes, StoredFinals
from tuner.study.record import Record
from tuner.study.subject import KnobFacts, Subject
from tuner.workload.workload import Execution

COMPACT_BASELINE = next(each.name for each in FRAMEWORK.baselines if COMPACT in (each.terms or {}).values())
"""It binds compactly: its spelling is the one to take."""
_NOISE_DF = 8.0  # weight (degrees of freedom) of the study's noise in the variance of a contender's rounds
_MIN_SE = 0.002  # no setting is known better than to 0.2 %
_BATCHES = 3  # from so many batch sizes on, a study tells of them

_DAMAGED = (BadInputError, KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A study that is not learned from, and the reason."""

    study: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A study that may be learned from: its noise as it was judged then, and the pairs of one setting with itself."""

    record: Record
    subject: Subject
    features: Features
    finals: tuple[StoredFinals | None, StoredFinals | None]
    """Of one process, and of several."""
    noise: Noise
    pairs: list[Pair]
    created: str


@dataclass(frozen=True, kw_only=True)
class StudyEvidence:
    """A study as input for learning. `default` is TensorFlow's default at the workload's batch size; `batches` are the
    batch sizes of its search space.
    """

    name: str
    created: str
    host: str
    """The machine, whatever its mask and quota."""
    shape_id: str
    """The machine with its mask and quota: a shape of it."""
    runtime: str
    situation: Situation
    default: Setting
    baselines: dict[str, Setting]
    compact: Value | None
    """How the OpenMP library's compact binding is spelt there; None where the space has no affinity."""
    batches: tuple[int, ...]
    covers_threads: bool
    """Whether its space had one thread, and all usable cores, for every pool: what rules on threads tell apart."""
    surface: ResponseSurface
    processes: StudyEvidence | None = None
    """The same study as evidence on the number of processes, None where it measured one alone.

    Its settings say how many there are, and the batch size of each. The default is one process, with TensorFlow's own
    threads; of several each has its share of the cores, and as many threads (`tuner.space.groups`).
    """
    latency: StudyEvidence | None = None
    """The same with batches of other sizes, None where no smaller one was measured of several processes.

    A setting whose call takes more than `MUCH_LONGER` times as long as the default's gains nothing, and counts as
    slower by the excess.
    """
    rates: ResponseSurface | None = None
    """Of the latter the rates themselves, whatever a call takes; None of other evidence."""

    @property
    def workload(self) -> str:
        """Return the workload, in whichever mode: what rules have to carry over from and to."""
        return self.situation.workload

    @cached_property
    def kind(self) -> SituationKind:
        """Return the workload and mode, and the kind of machine and build."""
        return SituationKind.of(self.situation)

    @cached_property
    def values(self) -> dict[str, float]:
        """Return the values of the features."""
        return self.situation.values()

    @property
    def covers_batch(self) -> bool:
        """Return whether it tells of batch sizes."""
        return len(self.batches) >= _BATCHES

    def setting(self, *recipes: Recipe) -> Setting:
        """Return what recipes mean here, the later ones on top of the earlier."""
        values: dict[str, Value] = {}
        for recipe in recipes:
            values |= recipe.values(self.situation.scale)
        return apply(self.default, values, self.compact)

    def best_found(self, *, batch: bool) -> Setting:
        """Return the best setting that was measured: with any `batch` size, or at the workload's own."""
        return self._best[batch]

    def n_compared(self, *, batch: bool) -> int:
        """Return how many settings were measured: with any `batch` size, or at the workload's own."""
        return sum(batch or setting.batch_size == self.default.batch_size for setting in self.surface.measured)

    @cached_property
    def _best(self) -> tuple[Setting, Setting]:
        return self.surface.best(batch_size=self.default.batch_size), self.surface.best()


def by_width(
    default: Setting,
    machine: Machine,
    width: float,
    compact: Value | None,
    pins: Mapping[str, Value] = MappingProxyType({}),
) -> dict[str, Setting]:
    """Return what the guides that know a graph's width set there, by their names; threads are bound compactly."""
    own = {BINDING: COMPACT, **pins}
    return {each.name: apply(default, each.rule(machine, width) | own, compact) for each in FRAMEWORK.width_guides}


def apply(default: Setting, values: Mapping[str, Value], compact: Value | None) -> Setting:
    """Return a default with those of `values` that it has knobs for; the word for a compact binding as it is spelt."""
    spelt = {knob: compact if value == COMPACT else value for knob, value in values.items()}
    return Setting(tuple((knob, value if (own := spelt.get(knob)) is None else own) for knob, value in default.items))


def read(
    records: Iterable[Record],
    *,
    device: str = devices.DEFAULT,
    simulated: bool = False,
    exclusion_reason: Callable[[Attributes], str | None] = lambda _: None,
) -> tuple[list[StudyEvidence], list[Excluded]]:
    """Return what can be learned from, the oldest first, and what cannot; measured studies unless `simulated`.

    Those of one kind of `device` only: what is true of a GPU is not true of a CPU.

    `exclusion_reason` says why a study, by its attributes, is not asked for. Of several versions of a workload the one
    with most studies is learned from, the newest of equals.
    """
    candidates: list[_Candidate] = []
    out: list[Excluded] = []
    for record in records:
        attributes = record.attributes()
        try:
            reason = exclusion_reason(attributes) or _exclusion_reason(attributes, device, simulated=simulated)
            if reason is None and attributes.finals is None and not _has_contrasts(record, attributes.subject):
                reason = "planned, and measured in part"
            if reason is None:
                candidates.append(_candidate(record, attributes))
                continue
        except _DAMAGED as error:
            reason = f"damaged ({error})"
        out.append(Excluded(study=record.name, reason=reason))
    versions: dict[str, Counter[str]] = defaultdict(Counter)
    for each in reversed(candidates):  # the newest first, which `most_common` keeps where versions have as many
        versions[_workload_key(each.subject)][each.subject.workload.fingerprint] += 1
    selected = []
    for each in candidates:
        what = _workload_key(each.subject)
        if versions[what].most_common(1)[0][0] == each.subject.workload.fingerprint:
            selected.append(each)
        else:
            out.append(Excluded(study=each.record.name, reason=f"it has another version of {what} than most studies"))
    studies = []
    for each, process_sd in zip(selected, _process_sds(selected), strict=True):
        try:
            study = _study(each, process_sd)
        except _DAMAGED as error:
            out.append(Excluded(study=each.record.name, reason=f"damaged ({error!r})"))
            continue
        if study.covers_threads or study.covers_batch or study.processes is not None:
            studies.append(study)
        else:
            out.append(
                Excluded(study=each.record.name, reason="its search space varies neither threads nor batch sizes")
            )
    return studies, out


def _candidate(record: Record, stored: Attributes) -> _Candidate:
    features = stored.get("features", Features)
    assert features is not None  # or it is unfit
    return _Candidate(
        record=record,
        subject=stored.subject,
        features=features,
        finals=(stored.finals, stored.group_finals),
        noise=stored.noise or PRIOR_NOISE,
        pairs=stored.noise_pairs,
        created=str(stored.created),
    )


def _process_sds(studies: Sequence[_Candidate]) -> list[float]:
    """Return σ_p of each study, estimated together with the others of its machine and build."""
    sds = [study.noise.process_sd for study in studies]
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, study in enumerate(studies):
        if study.pairs:
            alike[study.subject.machine.id, study.subject.runtime["id"]].append(i)
    for group in alike.values():
        pooled_sds = process_sds([studies[i].pairs for i in group], Objective.THROUGHPUT)
        for i, pooled_sd in zip(group, pooled_sds, strict=True):
            sds[i] = pooled_sd
    return sds


def by_reason(excluded: Sequence[Excluded]) -> dict[str, list[str]]:
    """Return the studies that are left out for each reason."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for each in excluded:
        names_by_reason[each.reason].append(each.study)
    return dict(names_by_reason)


def _workload_key(subject: Subject) -> str:
    """Return what a study is of, whatever its version: workload, mode and parameters."""
    workload = subject.workload
    return " ".join([workload.name, workload.mode, *(f"{name}={value}" for name, value in workload.params.items())])


def _exclusion_reason(stored: Attributes, device: str, *, simulated: bool) -> str | None:
    """Return why a study cannot be learned from, None if it can."""
    if stored.finals is None and not stored.planned:
        return "no finals"
    if (stored.origin == MEASURED) == simulated:
        return f"{stored.origin}, not {'simulated' if simulated else MEASURED}"
    if stored.objective is not Objective.THROUGHPUT:
        return f"its objective is {stored.objective}, not throughput"
    subject = stored.subject
    if subject.workload.execution is not Execution.GRAPH:
        return f"its workload ran {subject.workload.execution}, not as a graph"
    if subject.framework is not FRAMEWORK:
        return f"it ran {subject.framework.title}, which these rules do not cover"
    if subject.device_kind != device:
        return f"it ran on the {subject.device_kind}, which these rules do not cover"
    if subject.device.get("feed", HOST) != HOST:
        return "its inputs were on the device already"
    if _searched(subject, STREAMS.name):
        return "it had several calls at once, which these rules do not cover"
    if _searched(subject, INSTANCES) and 1 not in subject.knobs[INSTANCES].values:
        return "it had several processes in all of its settings"
    if any(each.pinned for each in stored.conditions):
        return "its workload changes the CPUs of its own process"
    features = stored.get("features", Features)
    if features is None:
        return "the graph of its workload is not known"
    if not features.heavy_operators:
        return "its workload's graph has no heavy operator"
    return None


def _has_contrasts(record: Record, subject: Subject) -> bool:
    """Return whether the default, and one thread and all cores in an operator, were measured, as plans begin with."""
    default = Setting.of(subject.baselines[subject.default].setting)
    ends = (FRAMEWORK.catalogue.threads_on(n).items() for n in (1, subject.machine.usable_cores))
    values = ({name: value for name, value in end if name in default.to_dict()} for end in ends)
    needed = {default, *(default.with_values(**each) for each in values)}
    return needed <= {setting for setting, *_ in record.observations(0.0)}


def _searched(subject: Subject, knob: str) -> bool:
    """Return whether a knob was part of a study's search space."""
    return knob in subject.knobs and subject.knobs[knob].active


def _study(candidate: _Candidate, process_sd: float) -> StudyEvidence:
    subject = candidate.subject
    situation = of_study(subject, candidate.features)
    baseline_settings = {name: Setting.of(each.setting) for name, each in subject.baselines.items()}
    whole = baseline_settings[subject.default]
    # A knob that the search space did not vary was off in all measurements, so its effect is unknown.
    unasked = {ONEDNN: 0} if situation.scale.onednn_is_open and ONEDNN not in whole.to_dict() else {}
    advised = {each.name: each.rule(subject.machine) for each in FRAMEWORK.baselines}
    on_gpu = bool(situation.gpu)
    default = _reduced(whole, unasked, on_gpu=on_gpu)
    compact = baseline_settings.get(COMPACT_BASELINE, whole).to_dict().get(BINDING)
    # A baseline that sets what no rule speaks of, such as an allocator, is not that baseline without it.
    baselines = {
        name: _reduced(
            setting, {knob: advised.get(name, {}).get(knob, off) for knob, off in unasked.items()}, on_gpu=on_gpu
        )
        for name, setting in baseline_settings.items()
        if _others(setting, on_gpu=on_gpu) == _others(whole, on_gpu=on_gpu)
    }
    baselines |= by_width(default, situation.machine, situation.features.width, compact)
    measured = _measured(candidate, process_sd)
    study = StudyEvidence(
        name=candidate.record.name,
        created=candidate.created,
        host=host_of(subject.machine),
        shape_id=subject.machine.id,
        runtime=subject.runtime["tensorflow"],
        situation=situation,
        default=default,
        baselines=baselines,
        compact=compact,
        batches=tuple(int(value) for value in subject.knobs[BATCH].values),
        covers_threads=_covers_threads(subject.knobs, situation),
        surface=ResponseSurface(default, _of_one_process(measured, whole, unasked, on_gpu=on_gpu)),
    )
    if on_gpu:
        return study
    processes, latency = (of_processes(study, whole, measured, same_latency=each) for each in (False, True))
    return replace(study, processes=processes, latency=latency)


def _covers_threads(knobs: Mapping[str, KnobFacts], situation: Situation) -> bool:
    """Return whether each pool could have one thread and all usable cores: not where it was held, or not searched.

    On a GPU, whether all that rules speak of there was searched.
    """
    if situation.gpu:
        return all(name in knobs and len(knobs[name].values) > 1 for name in OF_A_DEVICE)
    ends = {1, situation.machine.usable_cores}
    pools = [knobs[name].values for name in POOLS if name in knobs and knobs[name].active]
    return all(ends <= set(values) for values in pools)


def _reduced(setting: Setting, not_covered: Mapping[str, Value], *, on_gpu: bool) -> Setting:
    """Return a setting without the knobs that no rule speaks of, and with what its space did not ask about."""
    relevant = {knob: value for knob, value in setting.items if speaks_of(knob, on_gpu=on_gpu)}
    return Setting.of(relevant | {knob: value for knob, value in not_covered.items() if knob not in relevant})


def _others(setting: Setting, *, on_gpu: bool) -> dict[str, Value]:
    """Return the knobs of a setting that no rule speaks of."""
    return {knob: value for knob, value in setting.items if not speaks_of(knob, on_gpu=on_gpu)}


def _measured(candidate: _Candidate, process_sd: float) -> list[Measured]:
    """Return the trials and the finals' contenders, of one process and of several.

    Trials of one reference share its process effect; finals, as contrasts to it, what the default's mean is off.
    """
    record, baseline = candidate.record, candidate.subject.default
    trials = [row for of_groups in (False, True) for row in record.observations(process_sd, of_groups=of_groups)]
    measurements = [
        Measured(
            setting=setting, log_ratio=mean, variance=se**2 + process_sd**2, shared=process_sd**2, reference=reference
        )
        for setting, mean, se, reference in trials
        if math.isfinite(se)
    ]
    of_one, of_several = ([] if each is None else _finals(each, candidate.noise, baseline) for each in candidate.finals)
    # One process stands beside several in the rounds of its own finals.
    measurements += [
        Measured(setting=setting, log_ratio=mean, variance=se**2 / 2, shared=se**2 / 2, reference=FINALS)
        for setting, mean, se in [*of_one, *(row for row in of_several if is_group(row[0]))]
    ]
    return [replace(each, variance=each.variance + _MIN_SE**2) for each in measurements]


def _of_one_process(
    measured: Sequence[Measured], default: Setting, not_covered: Mapping[str, Value], *, on_gpu: bool
) -> list[Measured]:
    """Return what was measured of one process, and with the knobs that no rule speaks of at TensorFlow's default."""
    default_others = _others(default, on_gpu=on_gpu)
    return [
        replace(each, setting=_reduced(each.setting, not_covered, on_gpu=on_gpu))
        for each in measured
        if _others(each.setting, on_gpu=on_gpu) == default_others
    ]


def of_processes(
    study: StudyEvidence, whole: Setting, measured: Sequence[Measured], *, same_latency: bool = False
) -> StudyEvidence | None:
    """Return a study as evidence on processes; None where none was measured that has its share of the cores.

    With `same_latency` it is evidence on processes at the default's latency: None where no smaller batch was measured
    of such processes. The guides on their number are among the baselines where they come to such processes.
    """
    one = whole.without(INSTANCES)
    knobs = {name: (value,) for name, value in one.items}
    several = groups(FRAMEWORK.catalogue, knobs, one, study.situation.machine, {})
    own = [
        replace(each, setting=processes_of(each.setting))
        for each in measured
        if (of_own_size := each.setting.with_values(batch_size=one.batch_size)) in several
        or (same_latency and of_own_size == one)
    ]
    default = processes_of(one)
    if same_latency:
        sizes = [each.setting.batch_size for each in own if each.setting[INSTANCES] != 1]
        if min(sizes, default=one.batch_size) >= one.batch_size:
            return None
    if not own:
        return None
    rates = ResponseSurface(default, own)
    counted = ResponseSurface(default, [at_latency(each, default) for each in own]) if same_latency else rates
    guides = {name: processes_of(setting) for setting, names in several.items() for name in names}
    return replace(
        study,
        default=default,
        baselines={FRAMEWORK.catalogue.default: default} | guides,
        compact=None,
        covers_threads=False,
        surface=counted,
        rates=rates if same_latency else None,
    )


def at_latency(measured: Measured, default: Setting) -> Measured:
    """Return what a setting of processes counts as if a call may take `MUCH_LONGER` times as long as the default's."""
    counted = gain_at_latency(measured.log_ratio, n_items(measured.setting, default))
    return replace(measured, log_ratio=counted)


def n_items(setting: Setting, default: Setting) -> float:
    """Return how many items the calls of all processes have at once, relative to the default's call."""
    return n_processes_of(setting) * setting.batch_size / default.batch_size


def n_processes_of(setting: Setting) -> int:
    """Return how many processes a setting has: one, unless it says otherwise."""
    return int(setting.to_dict().get(INSTANCES, 1))


def gain_at_latency(log_ratio: float, items: float) -> float:
    """Return what a log-ratio of rates counts as: nothing is gained if a call is too long, and the excess is lost.

    With n times the `items` at x times the rate, a call takes n / x times as long.
    """
    excess = math.log(items) - log_ratio - math.log(MUCH_LONGER)
    return log_ratio if excess <= 0 else min(log_ratio, 0.0) - excess


def processes_of(setting: Setting) -> Setting:
    """Return how many processes a setting has, and the batch size of each: the rest follows from these."""
    return Setting.of({INSTANCES: setting.to_dict().get(INSTANCES, 1), BATCH: setting.batch_size})


def _finals(stored: StoredFinals, noise: Noise, baseline: str) -> list[tuple[Setting, float, float]]:
    """Return (setting, log-ratio to the default, its standard error) of each contender that ran beside the default.

    The variance of few rounds may be small by chance, so it is moderated by the study's noise, which comes from other
    pairs than these. That would be no evidence for a verdict; for a weight it is.
    """
    contenders, rounds = stored.contenders, stored.rounds
    names, y = log_rates(rounds, contenders, Objective.THROUGHPUT)
    default = next((c.names[0] for c in contenders if baseline in c.names), None)
    if default not in names:
        return []
    by_name = {contender.names[0]: contender.setting for contender in contenders}
    results = []
    for j, name in enumerate(names):
        x = y[:, j] - y[:, names.index(default)]
        x = x[~np.isnan(x)]
        if name != default and len(x) >= MIN_ROUNDS:
            slices = max(len(round_.slices.get(name, ())) for round_ in rounds)
            prior_sd = noise.finals_se(rounds=1, slices=slices)
            estimate = moderated_estimate(x, prior_sd=prior_sd, prior_df=_NOISE_DF)
            # Student's intervals are wider than normal ones by this much, where there are few rounds.
            wider = math.sqrt(estimate.df / (estimate.df - 2))
            results.append((by_name[name], estimate.mean, wider * estimate.se))
    return results
