"""Recommendations: a setting from rules, in seconds and without a trial, or measured against the default."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from msgspec import structs

from tuner.api.options import WorkloadOptions, duration_text, path_text, workload_spec
from tuner.api.progress import VerificationShown, stderr_console
from tuner.api.shown import Shown
from tuner.devices import registry as devices
from tuner.errors import TunerError, unknown_name
from tuner.job import compare as comparing
from tuner.job.advise import advise
from tuner.job.compared import ComparedSetting
from tuner.job.events import ComparisonEvents
from tuner.job.job import Job, prepare
from tuner.job.request import ParsedRequest, SearchRequest, parse_request
from tuner.job.rulebook import load
from tuner.machine.host import Machine
from tuner.machine.locks import machine_lock
from tuner.report import advice
from tuner.report.emit import Format, Ways, emit
from tuner.result.comparison import ComparisonResult
from tuner.result.recommendation import RecommendationResult
from tuner.rules.recipe import THREADS
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import VerdictCode
from tuner.workload.spec import WorkloadSpec

VERIFICATION_BUDGET = "2m"


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
        self.result = result
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
            raise TunerError("the recommended setting is slower than the default here", "keep the default")
        sentences = "; ".join(each.sentence for each in self.result.followed)
        return emit(
            self.deployment,
            Format(format),
            title=f"tftune recommend {self.result.workload}: {sentences}",
            facts=advice.facts(self.result),
            ways=self._ways,
            machine=self._machine if self.deployment else None,
            cpu_limited=self._cpu_limited,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRequest:
    """The options of `tftune recommend` as they were typed."""

    workload: WorkloadSpec
    batch_size: str | None = None
    python: str | None = None
    rules: Path | None = None
    batch: bool = False
    verify: bool = False
    time_budget: str = VERIFICATION_BUDGET
    wait: bool = False

    @property
    def command(self) -> str:
        """Return the words and options that another command for the same workload has to be given, too."""
        options = {"--python": self.python, "--batch-size": self.batch_size}
        others = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value is not None]
        return " ".join([self.workload.command_line, *others])

    @property
    def own_options(self) -> str:
        """Return the options that only another recommendation has to be given, each after a space."""
        rules = "" if self.rules is None else f" --rules {shlex.quote(str(self.rules))}"
        return rules + (" --batch" if self.batch else "")


def run_recommendation(request: RecommendationRequest, events: ComparisonEvents) -> Recommendation:
    """Recommend as requested; raises BadInputError where nothing can be said."""
    request.workload.reject_options("--rate", "--metric-regex", "--minimize", kind="a recommendation")
    checked = parse_request(
        SearchRequest(
            workload=request.workload,
            space=THREADS if devices.find(request.workload.device).kind == devices.DEFAULT else None,
            python=request.python,
            time_budget=request.time_budget,
            batch_size=request.batch_size,
        ),
        stores=False,
    )
    rules, place = load(request.rules, checked.device.kind)
    job = prepare(checked)
    job.tell_notes(events.notice)
    job.launcher()
    setting, result = advise(job, rules, place, batch=request.batch)
    if request.verify:
        result = structs.replace(result, verified=_verify(job, setting, checked, wait=request.wait, events=events))
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


def _verify(
    job: Job, setting: Setting, checked: ParsedRequest, *, wait: bool, events: ComparisonEvents
) -> ComparisonResult | None:
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
        return comparing.describe(comparing.measure(job, a, b, checked, events=events))


def recommend(
    workload: str | Path,
    *,
    batch_size: int | None = None,
    rules: str | Path | None = None,
    batch: bool = False,
    verify: bool = False,
    time_budget: str | float = VERIFICATION_BUDGET,
    python: str | Path | None = None,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Recommendation:
    """Recommend a setting from rules that were learned on other workloads: `tftune recommend`.

    `rules` is a file of them, or `shipped`. With `batch` the rules on the batch size are applied too, and with `verify`
    the setting is measured against the default for the `time_budget`. Raises BadInputError where nothing can be said.
    """
    request = RecommendationRequest(
        workload=workload_spec(workload, **options),
        batch_size=None if batch_size is None else str(batch_size),
        python=path_text(python),
        rules=None if rules is None else Path(rules),
        batch=batch,
        verify=verify,
        time_budget=str(duration_text(time_budget)),
        wait=wait,
    )
    return run_recommendation(request, VerificationShown(stderr_console(quiet=not progress)))
