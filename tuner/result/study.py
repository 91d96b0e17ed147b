"""A study as it is published: what `tftune search`, `show` and `list` give to programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from tuner.machine.conditions import Conditions
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.warning import ADVICE, Code, MeasurementWarning
from tuner.model.graph import Features
from tuner.result import fields_of
from tuner.space.deployment import Deployment
from tuner.space.values import Value
from tuner.stats.equivalence import Verdict, VerdictCode
from tuner.stats.tail import LimitStatus
from tuner.study.subject import Document, Subject, Values
from tuner.trial.outcome import Status

_ALWAYS_TOLD = frozenset({"name", "env", "arguments", "cpus"})
ONE, SEVERAL, AT_SAME_LATENCY = "one process", "several processes", "same latency"
"""What the answers of a study are of."""


class WarningResult(Struct, frozen=True, kw_only=True):
    """One thing that makes a figure less believable: what was found, and what to do about it."""

    code: Code
    found: str
    advice: str

    @classmethod
    def of(cls, warning: MeasurementWarning, own_advice: Mapping[str, str] | None = None) -> WarningResult:
        """Return a warning with its advice, and with what the device or the framework can do about it."""
        own = (own_advice or {}).get(warning.code)
        advice = ADVICE[warning.code] + ("" if own is None else f" ({own})")
        return cls(code=warning.code, found=warning.observation, advice=advice)


class VerdictResult(Struct, frozen=True, kw_only=True):
    """A speed-up with its interval, null where nothing can be said; `code` is the JSON's `verdict`."""

    speedup: float | None
    low: float | None
    high: float | None
    code: VerdictCode = field(name="verdict")

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictResult:
        """Return a verdict as it is published."""
        return cls(speedup=verdict.speedup, low=verdict.low, high=verdict.high, code=verdict.code)


class NodeResult(Struct, frozen=True, kw_only=True):
    """The sessions of one node of a cluster together: the ratio to the default with its 95 % interval."""

    node: str
    ratio: float
    low: float
    high: float


class PooledResult(VerdictResult, frozen=True, kw_only=True):
    """What several sessions report together; if they disagree, the verdict is undecided.

    `nodes` are the nodes of a cluster that the sessions were held on, if there are several.
    """

    sessions: int
    sessions_disagree: bool
    nodes: tuple[NodeResult, ...] = ()


class GainResult(PooledResult, frozen=True, kw_only=True):
    """The same, with the time (s) between the two sessions that lie closest, null if not known."""

    closest_s: float | None


class SessionResult(Struct, frozen=True, kw_only=True):
    """One session: when it began (ISO 8601), the ratio to the default with its 95 % interval, and its rounds.

    `node` is the node of a cluster that it was held on, empty outside of clusters.
    """

    began: str
    ratio: float
    low: float
    high: float
    rounds: int
    node: str = ""


class MemberResult(Struct, frozen=True, kw_only=True):
    """What applies a setting to the process of one member of an ensemble, by the `name` of its model.

    `share` is there where the members share a CPU quota: how many of its cores are this one's.
    """

    name: str
    env: dict[str, str]
    arguments: dict[str, Value]
    cpus: str | None
    options: dict[str, Value] | UnsetType = UNSET
    share: int | UnsetType = UNSET

    @classmethod
    def of(cls, deployment: Deployment) -> MemberResult:
        """Return what is published of a member's deployment."""
        return cls(**_told(cls, deployment))

    @property
    def deployment(self) -> Deployment:
        """Return what applies it."""
        return Deployment(**_known(self, MemberResult))


def applied(deployment: Deployment) -> dict[str, Any]:
    """Return what is published of a deployment, as the fields of `Applied`."""
    members = tuple(MemberResult.of(each) for each in deployment.members)
    return _told(Applied, deployment) | {"members": members or UNSET}


def _told(published: type[Struct], deployment: Deployment) -> dict[str, Any]:
    """Return the fields of a published type that a deployment has; most of them only where they are not as usual."""
    usual = Deployment()
    told = fields_of(published, deployment)
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in told.items()}
    return {n: each if n in _ALWAYS_TOLD or each != getattr(usual, n) else UNSET for n, each in plain.items()}


def _known(result: Struct, published: type[Struct]) -> dict[str, Any]:
    """Return those fields of a published type that a result has."""
    return {name: value for name, value in fields_of(published, result).items() if value is not UNSET}


class Applied(Struct, frozen=True, kw_only=True):
    """What applies a setting, see `tuner.space.deployment`.

    `options` are there where a session has some, `processes` and `streams` where there are several, `cpu_sets`, the
    CPUs of each process, where they are kept apart, `shared_batch`, the items that they share, where they share some,
    and `members` where the workload is an ensemble.
    """

    env: dict[str, str]
    arguments: dict[str, Value]
    cpus: str | None
    options: dict[str, Value] | UnsetType = UNSET
    processes: int | UnsetType = UNSET
    cpu_sets: tuple[str, ...] | UnsetType = UNSET
    streams: int | UnsetType = UNSET
    shared_batch: int | UnsetType = UNSET
    members: tuple[MemberResult, ...] | UnsetType = UNSET

    @property
    def deployment(self) -> Deployment:
        """Return what applies the setting."""
        members = tuple(each.deployment for each in self.members or ())
        return Deployment(**_known(self, Applied) | {"members": members})


class TrialResult(Struct, frozen=True, kw_only=True):
    """A trial without its raw slices; `ratio` is to the reference, with its 95 % interval, null where it failed."""

    number: int
    setting: Values
    baselines: tuple[str, ...]
    status: Status
    pruned: bool
    """Whether it was stopped early because it is clearly slower."""
    message: str
    ratio: float | None
    low: float | None
    high: float | None
    timed_s: float
    wall_s: float
    p99_ms: float | None
    peak_memory_bytes: int | None
    energy_j: float | None = None
    """What the device took for an item (J), what it takes anyway included."""
    power_w: float | None = None
    deviation: float | None
    """How far its outputs lie from the reference's, relative."""
    first_step_s: float | None
    warm_up_settled: bool | None
    steady: bool
    alone: bool
    over_limit: bool
    reference: int
    """The number of the reference process that it was paired with."""
    is_group: bool = field(name="group")
    """Whether it is of several processes, in a study whose space is of one."""


class ExpectationResult(Struct, frozen=True, kw_only=True):
    """What a model of the machine has expected of a search before it began, and how right it was.

    `predicted` is the speed-up over the default that it expected of the `setting` that it would have chosen; `status`
    is how the trial of that ended, null where it was not tried, and `ratio` what it measured, with its 95 % interval.
    `rank_correlation` is Spearman's, between what was predicted and measured of `settings` trials; null below five of
    them. `trust` is how much the search believed the model in the end, from 0 to 1; null where it did not end.
    """

    setting: Values
    predicted: float
    status: Status | None
    ratio: float | None
    low: float | None
    high: float | None
    rank_correlation: float | None
    settings: int
    trust: float | None


class CountsResult(Struct, frozen=True, kw_only=True):
    """How many trials ended how: `ok` were completed, `pruned` stopped early; `kinds` are those of the failed."""

    ok: int
    failed: int
    pruned: int
    kinds: dict[Status, int]


class IncumbentResult(Struct, frozen=True, kw_only=True):
    """The best setting of the search, with its own ratio to the reference, which finals have not confirmed."""

    setting: Values
    ratio: float | None
    low: float | None
    high: float | None


class NoiseResult(Struct, frozen=True, kw_only=True):
    """Noise (standard deviations on the log scale), and the `floor` of finals of the usual length, a ratio minus 1."""

    block_sd: float
    process_sd: float
    drift: float
    n_pairs: int
    n_blocks: int
    floor: float
    assumed: bool
    """Whether it is more what is usual than what was seen."""


class AdviceResult(Applied, frozen=True, kw_only=True):
    """A setting under the name that it has in the finals."""

    source: str
    setting: Values


class CallResult(Struct, frozen=True, kw_only=True):
    """What a call of `items` takes: quantiles (ms), null for too few calls, and the memory of all processes."""

    items: int
    p50_ms: float | None
    p99_ms: float | None
    peak_memory_bytes: int | None


class LatencyResult(Struct, frozen=True, kw_only=True):
    """The price of a gain: a call `before`, under the default, and `after`.

    `ratio` is how many times as long a call takes, by the median, with its 95 % interval.
    """

    before: CallResult
    after: CallResult
    ratio: float
    low: float
    high: float | None


class RecommendedResult(AdviceResult, frozen=True, kw_only=True):
    """What to use, and why; `alike` are those that are tied with the fastest.

    `gain` is null for the default; `together` is what all sessions of what was tried say, the gain among them.
    `latency` is null for the default, for commands, and if the latency is what was searched for.
    """

    reason: str
    alike: tuple[str, ...]
    gain: GainResult | None
    together: GainResult | None
    sessions: tuple[SessionResult, ...]
    limits: LimitStatus | None
    latency: LatencyResult | None = None


class TailResult(Struct, frozen=True, kw_only=True):
    """Quantiles of `n_steps` (ms), null for too few, the peak memory of all processes, and the energy (J/item)."""

    p50: float | None
    p90: float | None
    p99: float | None
    n_steps: int
    peak_memory_bytes: int | None
    energy_j: float | None = None


class FinalsResult(Struct, frozen=True, kw_only=True):
    """The finals; contenders go by the first of their `names`."""

    advice: AdviceResult
    """What these finals alone come to: what a check measures again."""
    rounds: int
    fresh_rounds: int
    """Those of fresh interpreters."""
    ended: str
    incumbent: Values
    default: Values | None
    margin: float
    levels: dict[str, float]
    unit: str
    """Of the rates."""
    rates: dict[str, float]
    tails: dict[str, TailResult]
    kept: dict[str, LimitStatus]
    """Whether each keeps to the limits, where there are some."""
    names: dict[str, tuple[str, ...]]
    failures: dict[str, str]
    timed_s: float


class ShrinkageResult(Struct, frozen=True, kw_only=True):
    """The incumbent against the default: the ratio that the search found, and that of the finals."""

    search: float
    finals: float


class PlannedResult(Struct, frozen=True, kw_only=True):
    """What planned measurements came to: of how many `settings`, and the `best` of them beside the default.

    It is `complete` if all that was planned is measured. The best is one at the default's batch size. `ratio` is to the
    default, with its 95 % interval, and proves nothing: the largest of many estimates is mostly too large. A call then
    takes `call` times as long as the default's, by Little's law. `width` is half the width of the median setting's
    interval (0.03 is ±3 %). All runs took `wall_s` (s), and the command `search` proves a setting. What is not known is
    null.
    """

    settings: int
    complete: bool
    best: Values | None
    ratio: float | None
    low: float | None
    high: float | None
    call: float | None
    width: float | None
    wall_s: float
    search: str


class AnswerResult(Struct, frozen=True, kw_only=True):
    """An answer of a study: the finals of its setting, the verdicts on that against others by name, and what to use."""

    finals: FinalsResult
    verdicts: dict[str, VerdictResult]
    recommended: RecommendedResult


class StudyResult(Subject, frozen=True, kw_only=True):
    """A study: what it is of, its trials, its finals and what it recommends; what does not exist yet is null."""

    study: str
    created: str | None
    command: str | None = None
    """The last search of the study, as it is typed; earlier studies do not say."""
    objective: Objective
    seed: int | None
    trials: CountsResult
    history: tuple[TrialResult, ...]
    features: Features | None
    hints: dict[str, Values]
    expectation: ExpectationResult | None = None
    noise: NoiseResult | None
    conditions: Conditions | None
    may_change_numerics: bool = False
    """Whether settings that compute in another precision were allowed."""
    pins: dict[str, str] | UnsetType = UNSET
    """What `--set` held, as it was typed; not there where nothing was held."""
    batch_sizes: tuple[int, ...] | UnsetType = UNSET
    """What `--batch-size` asked for; not there where nothing was."""
    why_no_energy: str | None = None
    """Why no energy was measured, where none was; earlier studies do not say."""
    incumbent: IncumbentResult | None
    verdicts: dict[str, VerdictResult] | None
    recommended: RecommendedResult | None
    shrinkage: ShrinkageResult | None
    warnings: tuple[WarningResult, ...]
    limits: Limits
    finals: FinalsResult | None
    groups: AnswerResult | None
    """The answer on several processes; what is beside it is of one process."""
    same_latency: AnswerResult | None = None
    """The answer among settings whose call takes no longer than the default's, where the fastest takes much longer."""
    why_no_same_latency: str | None = None
    """Why there is none, where it was asked for."""
    ended_because: str | None
    planned: PlannedResult | None = None
    """What came of it where the settings were planned, and none was searched for; such a study recommends nothing."""
    search_timed_share: float | None
    """Share of the last search that was spent inside timed slices."""
    wall_s: float | None
    measured_s: float | None

    @property
    def answers(self) -> dict[str, AnswerResult]:
        """Return the answers that there are by what they are of, in the order of the card."""
        of_one = None
        if self.finals is not None and self.recommended is not None:
            of_one = AnswerResult(finals=self.finals, verdicts=self.verdicts or {}, recommended=self.recommended)
        answers = {ONE: of_one, SEVERAL: self.groups, AT_SAME_LATENCY: self.same_latency}
        return {of: answer for of, answer in answers.items() if answer is not None}


def nodes_of(study: StudyResult, answers: Collection[str] | None = None) -> set[str]:
    """Return the nodes of clusters that all these answers of a study were measured on; by default any of all."""
    by_answer = [
        {session.node for session in answer.recommended.sessions if session.node}
        for of, answer in study.answers.items()
        if answers is None or of in answers
    ]
    return set().union(*by_answer) if answers is None or not by_answer else set.intersection(*by_answer)


class NoStudyResult(Document, frozen=True, kw_only=True):
    """A search that was interrupted before it had a study."""

    study: None = None
    incumbent: None = None
    verdicts: None = None
    recommended: None = None


class StudyLine(Struct, frozen=True, kw_only=True):
    """One study in a list: on which machine (its id, and its cores and limit in words), of which build.

    `setting` is what of the recommended setting differs from the default; empty where that is recommended, null without
    finals.
    """

    study: str
    machine: str
    cores: str
    build: str
    workload: str
    mode: str
    trials: int
    verdict: VerdictResult | None
    setting: Values | None
    groups: VerdictResult | None
    """On several processes against the default."""
    groups_setting: Values | None
    """As `setting`, of the answer on several processes."""
    same_latency: VerdictResult | None = None
    """At the default's latency against the default."""
    same_latency_setting: Values | None = None
    """As `setting`, of the answer at the default's latency."""
    planned: bool = False
    """Whether its settings were planned, so that there are no finals."""
    created: str | None
    updated: str | None
