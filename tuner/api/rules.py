"""Rules: what many studies say together; and recommendations from them, in seconds and without a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from msgspec import structs

from tuner.api.options import Duration, WorkloadOptions, request_of, storage_text
from tuner.api.shown import Shown
from tuner.devices import registry as devices
from tuner.errors import BadInputError, FindingError, unknown_name
from tuner.job import compare as comparing
from tuner.job import rulebook
from tuner.job.advise import advise
from tuner.job.compare import ComparedSetting
from tuner.job.events import ComparisonEvents
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import COMPARED, RecommendRequest, SearchRequest
from tuner.job.selection import Selection
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.report import advice, chart, rulepage
from tuner.report.emit import Format, Ways, emit
from tuner.report.progress import VerificationShown, stderr_console
from tuner.result.comparison import ComparisonResult
from tuner.result.recommendation import RecommendationResult
from tuner.rules.recipe import THREADS
from tuner.rules.rule import RuleSet
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import VerdictCode


class Rules:
    """A set of rules; all of it, with its evidence, is in `rule_set`. A notebook shows what to set where."""

    def __init__(self, rule_set: RuleSet) -> None:
        """Take a set of rules."""
        self.rule_set = rule_set

    def pictures(self) -> dict[str, str]:
        """Return the pictures of the page as SVG, by name; none where nothing was held out."""
        drawn = {rulepage.SPEEDUPS: chart.speedups(self.rule_set), rulepage.LOSSES: chart.losses(self.rule_set)}
        return {name: svg for name, svg in drawn.items() if svg is not None}

    def html(self) -> str:
        """Return the page as one file that needs nothing else."""
        return rulepage.html(self.rule_set, self.pictures())

    def markdown(self, files: dict[str, str] | None = None) -> str:
        """Return the page for a wiki; `files` are those of the pictures, by name."""
        return rulepage.markdown(self.rule_set, files or {})

    def save(self, path: str | Path | None = None) -> None:
        """Write the rules where `recommend` and `search` look for them, or to another file."""
        rulebook.save(self.rule_set, rulebook.local_rules(self.rule_set.device) if path is None else Path(path))

    def __str__(self) -> str:
        return rulepage.brief(self.rule_set)

    def __repr__(self) -> str:
        n = self.rule_set.provenance.n_studies
        return f"<Rules {sum(len(group.rules) for group in self.rule_set.groups.values())}, from {n} studies>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return rulepage.fragment(self.rule_set)


def learn_rules(
    storage: str | Path | None = None,
    *,
    since: str | None = None,
    machines: str | None = None,
    workloads: str | None = None,
    device: str = devices.DEFAULT,
    notify: Callable[[str], None] = lambda _: None,
) -> Rules:
    """Learn rules from the stored studies of a kind of device, filtered as by `tftune rules`.

    Raises BadInputError where there are none.
    """
    selection = Selection(since=since, machines=machines, workloads=workloads)
    return Rules(rulebook.make(storage_text(storage), selection, device=device, notify=notify))


def load_rules(path: str | Path | None = None, *, device: str = devices.DEFAULT) -> Rules:
    """Return the rules of a file, or `shipped` ones; by default those that `recommend` uses on a kind of device.

    Raises BadInputError.
    """
    return Rules(rulebook.load(None if path is None else Path(path), device)[0])


class Recommendation(Shown):
    """What the rules recommend, and what speaks for it; all of it is in `result`."""

    result: RecommendationResult

    def __init__(
        self,
        result: RecommendationResult,
        *,
        command: str,
        ways: Ways,
        machine: Machine,
        own_options: str = "",
        cpu_limited: Sequence[str] = (),
    ) -> None:
        """Take a result; `command` names the workload and its options as they would be typed.

        `own_options` are those that only a recommendation has, and `cpu_limited` the variables that follow a
        container's CPU limit.
        """
        super().__init__(result, advice.recommendation_card(result, command=command, own_options=own_options))
        self._ways = ways
        self._machine = machine
        self._cpu_limited = tuple(cpu_limited)

    @property
    def deployment(self) -> Deployment:
        """Return what to set; nothing where the defaults are to be kept."""
        return self.result.deployment

    @property
    def is_slower(self) -> bool:
        """Return whether it was measured, and is slower than the default here."""
        verified = self.result.verified
        return verified is not None and verified.code is VerdictCode.WORSE

    def emit(self, format: str = "sh") -> str:
        """Return a snippet that applies the recommendation, in a format of `tftune emit`.

        Raises TunerError where it was measured, and is slower than the default here.
        """
        if format not in list(Format):
            raise unknown_name("format", format, list(Format))
        if self.is_slower:
            raise FindingError("the recommended setting is slower than the default here", "keep the default")
        sentences = "; ".join(each.sentence for each in self.result.followed)
        return emit(
            self.deployment,
            Format(format),
            title=f"tftune recommend {self.result.workload}: {sentences}",
            facts=advice.facts(self.result),
            ways=self._ways,
            machine=self._machine if self.deployment else None,
            cpu_limited=self._cpu_limited,
            model=self.result.workload,
        )


def run_recommendation(request: RecommendRequest, events: ComparisonEvents) -> Recommendation:
    """Recommend as requested; raises BadInputError where nothing can be said."""
    request.workload.reject_options("--rate", "--metric-regex", "--minimize", kind="a recommendation")
    answers = {
        "--any-batch-size": request.batch,
        "--instances": request.instances,
        "--same-latency": request.same_latency,
    }
    if len(asked := [option for option, is_asked in answers.items() if is_asked]) > 1:
        raise BadInputError(f"{' and '.join(asked)} are different answers", "give one of them")
    checked = parse_request(
        SearchRequest(
            workload=request.workload,
            space=THREADS if devices.find(request.workload.device).kind == devices.DEFAULT else None,
            python=request.python,
            time_budget=request.time_budget,
            batch_size=None if request.batch_size is None else str(request.batch_size),
        ),
        stores=False,
    )
    path = None if request.rules is None else Path(request.rules)
    rules, place = rulebook.load(path, checked.device.kind)
    job = prepare(checked)
    job.tell_notes(events.notice)
    job.launcher()
    setting, result = advise(
        job, rules, place, batch=request.batch, instances=request.instances, same_latency=request.same_latency
    )
    if request.verify:
        result = structs.replace(result, verified=_verify(job, setting, wait=request.wait, events=events))
    machine = job.machine
    # A container's limit counts hardware threads; the rules count cores.
    is_same = machine.usable_cores == machine.usable_cpus
    return Recommendation(
        result,
        command=request.command,
        own_options=request.own_options,
        ways=Ways(server_flags=job.framework.server_flags, calls=job.framework.calls),
        machine=machine,
        cpu_limited=advice.cpu_limited(result) if is_same else (),
    )


def _verify(job: Job, setting: Setting, *, wait: bool, events: ComparisonEvents) -> ComparisonResult | None:
    """Measure a setting against the default; None where it is the default."""
    default = job.space.reference
    if setting == default:
        events.notice("nothing to verify: the recommendation is the default")
        return None
    a, b = (
        ComparedSetting(name=text, setting=each, deployment=job.space.deployment(each))
        for text, each in ((job.space.default, default), ("rules", setting))
    )
    with machine_lock(wait=wait, on_wait=events.waiting):
        return comparing.describe(comparing.measure(job, a, b, events=events))


def recommend(
    workload: str | Path,
    *,
    batch_size: int | None = None,
    rules: str | Path | None = None,
    batch: bool = False,
    instances: bool = False,
    same_latency: bool = False,
    verify: bool = False,
    time_budget: Duration = COMPARED,
    python: str | Path | None = None,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Recommendation:
    """Recommend a setting from rules that were learned on other workloads: `tftune recommend`.

    `rules` is a file of them, or `shipped`. With `batch` the rules on the batch size are applied, too. With `instances`
    the rules on processes replace those on threads. With `same_latency` those on processes do whose calls take about as
    long as the default's. At most one of the three can be given. With `verify` the setting is measured against the
    default for the `time_budget`. Raises BadInputError if nothing can be said.
    """
    request = request_of(RecommendRequest, locals())
    return run_recommendation(request, VerificationShown(stderr_console(quiet=not progress)))
