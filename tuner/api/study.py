"""Studies: search for the best setting, and load what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tuner.api.options import (
    WorkloadOptions,
    batch_sizes_text,
    duration_text,
    path_text,
    pins_text,
    storage_text,
    workload_spec,
)
from tuner.api.progress import SearchShown, stderr_console
from tuner.api.shown import Shown
from tuner.errors import BadInputError, unknown_name
from tuner.job.events import SearchEvents
from tuner.job.request import DEFAULT_SPACE, TRIAL_TIMEOUT, SearchRequest
from tuner.job.selection import Selection
from tuner.job.sessions import SessionPlan, make_sessions, run_sessions
from tuner.paths import DEFAULT_STORAGE
from tuner.report import chart, frame, studycard, studypage
from tuner.report.document import advice_of, describe_line, describe_study
from tuner.report.emit import Format
from tuner.report.result.study import StudyLine, StudyResult
from tuner.space.deployment import Deployment
from tuner.space.values import Value
from tuner.stats.equivalence import MARGIN
from tuner.study.record import Record
from tuner.study.storage import find, open_storage
from tuner.study.storage import records as stored_records

if TYPE_CHECKING:
    import pandas as pd

REPORT_FORMATS = ("html", "md")
_OF_SEVERAL = ("sh", "compose", "k8s", "systemd")
_PAGE_SNIPPETS = ("sh", "docker", "compose", "k8s", "tfserving", "systemd", "python")


class Study(Shown):
    """A study: its answer, and all that is known of it in `result`."""

    result: StudyResult

    def __init__(self, result: StudyResult, *, handle: str | None = None, storage: str = DEFAULT_STORAGE) -> None:
        """Take a result; `handle` is what commands call the study, its name where that is not said."""
        super().__init__(result, studycard.study_card(result, handle=handle or result.study, storage=storage))
        self.result = result

    @property
    def name(self) -> str:
        """Return the name in the storage."""
        return self.result.study

    def deployment(self, *, instances: bool = False) -> Deployment:
        """Return what to set: `env`, the variables, and what else there is to do, such as `cpus` and `arguments`.

        With `instances` that is what is best if several processes may run. Raises BadInputError without finals.
        """
        return advice_of(self.result, groups=instances).deployment

    def emit(self, format: str = "sh", *, instances: bool = False, model: str | None = None) -> str:
        """Return a snippet that applies the recommendation, in a format of `tftune emit`.

        Of an ensemble, `model` names the one that it is for.
        """
        if format not in list(Format):
            raise unknown_name("format", format, list(Format))
        advice = advice_of(self.result, groups=instances)
        return studycard.snippet(self.result, advice, Format(format), model=model)

    def report(self, format: str = "html") -> str:
        """Return the study as one page that needs nothing else: `html`, or `md` for a pull request."""
        if format not in REPORT_FORMATS:
            raise unknown_name("format", format, REPORT_FORMATS)
        if format == "md":
            return studypage.markdown(self.result, self.card, self._snippets(("sh",)))
        return studypage.html(self.result, self.card, self._snippets(_PAGE_SNIPPETS), chart.all_of(self.result))

    def trials(self) -> pd.DataFrame:
        """Return a row for each finished trial: setting, ratio to the default with its interval, status."""
        return frame.trials([self.result])

    def _snippets(self, formats: Sequence[str]) -> dict[str, str]:
        """Return what applies the answers, by format; those of several processes where they say so."""
        snippets: dict[str, str] = {}
        study, advice = self.result, self.result.recommended
        if advice is not None and advice.deployment and not advice.deployment.members:
            fitting = [name for name in formats if name != Format.TFSERVING or study.framework.server_flags]
            snippets = {name: studycard.snippet(study, advice, Format(name)) for name in fitting}
        several = None if study.groups is None else study.groups.recommended
        if several is not None and several.deployment.processes > 1:
            of_several = {f"{name}, several processes": Format(name) for name in formats if name in _OF_SEVERAL}
            snippets |= {title: studycard.snippet(study, several, format_) for title, format_ in of_several.items()}
        return snippets


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """What came of a search: its study, None if it was interrupted before there was one.

    Of further sessions, `failed` says whether one of them did.
    """

    study: Study | None
    interrupted: bool
    failed: bool


def run_search(
    request: SearchRequest,
    sessions: SessionPlan,
    events: SearchEvents,
    *,
    after_first: Callable[[Study], None] = lambda _: None,
) -> SearchOutcome:
    """Search as requested; `after_first` is called with what was found where other sessions follow."""

    def study_of(record: Record) -> Study:
        handle = "last" if request.storage == DEFAULT_STORAGE else record.name
        return Study(describe_study(record), handle=handle, storage=request.storage)

    outcome = run_sessions(request, sessions, events, after_first=lambda record: after_first(study_of(record)))
    return SearchOutcome(
        study=None if outcome.record is None else study_of(outcome.record),
        interrupted=outcome.interrupted,
        failed=outcome.failed,
    )


def search(
    workload: str | Path | Sequence[str],
    *,
    time_budget: str | float | None = None,
    trials: int | None = None,
    space: str | Path = DEFAULT_SPACE,
    objective: str = "throughput",
    batch_size: int | Sequence[int] | None = None,
    pins: Mapping[str, Value] | None = None,
    max_p99_ms: float | None = None,
    max_memory: str | None = None,
    instances: bool = True,
    margin: float = MARGIN,
    seed: int = 0,
    sessions: int = 1,
    every: str | float | None = None,
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: str | float = TRIAL_TIMEOUT,
    launcher: str = "fork",
    new: bool = False,
    wait: bool = False,
    progress: bool = True,
    metric_regex: str | None = None,
    minimize: bool = False,
    **options: Unpack[WorkloadOptions],
) -> Study:
    """Search for the best setting of a workload, and compare it with the recommended ones: `tftune search`.

    `workload` is a shipped one by its name, a file, or the words of a command that prints the number which
    `metric_regex` finds. Durations are text such as `"5m"`, or seconds; `margin` is a share (0.02 for 2 %). With
    `progress` the trials are shown on stderr. The same call continues the study, unless it is to be a `new` one.

    Raises BadInputError for what cannot be asked, and TunerError where nothing could be measured. Ctrl-C raises
    KeyboardInterrupt, and loses no finished trial.
    """
    spec = workload_spec(workload, **options)
    own = {"words": spec.words, "metric_regex": metric_regex, "minimize": minimize}
    request = SearchRequest(
        workload=type(spec)(**(spec.to_dict() | own)),
        trials=trials,
        time_budget=duration_text(time_budget),
        seed=seed,
        space=str(space),
        objective=objective,
        batch_size=batch_sizes_text(batch_size),
        pins=pins_text(pins),
        python=path_text(python),
        storage=storage_text(storage),
        margin=margin,
        max_p99_ms=max_p99_ms,
        max_memory=max_memory,
        trial_timeout=str(duration_text(trial_timeout)),
        new=new,
        wait=wait,
        launcher=launcher,
        instances=instances,
    )
    outcome = run_search(
        request, make_sessions(sessions, duration_text(every)), SearchShown(stderr_console(quiet=not progress))
    )
    if outcome.interrupted or outcome.study is None:
        raise KeyboardInterrupt
    return outcome.study


def load_study(name: str = "last", storage: str | Path | None = None) -> Study:
    """Return a stored study by its name, a unique prefix of it, or `last`; raises BadInputError where it is none."""
    url = storage_text(storage)
    opened = open_storage(url, create=False)
    if opened is None:
        raise BadInputError(f"no study '{name}': {url} does not exist", "begin with: tftune search resnet50")
    return Study(describe_study(find(opened, name)), handle=name, storage=url)


def list_studies(
    storage: str | Path | None = None,
    *,
    since: str | None = None,
    machine: str | None = None,
    workloads: str | None = None,
) -> list[StudyLine]:
    """Return a line for each stored study that can be read, the oldest first, filtered as by `tftune list`."""
    opened = open_storage(storage_text(storage), create=False)
    if opened is None:
        return []
    records, _ = stored_records(opened)
    selection = Selection(since=since, machine=machine, workloads=workloads)
    exclusion_reason = selection.exclusion_reason(record.attributes().subject for record in records)
    return [describe_line(record) for record in records if exclusion_reason(record.attributes()) is None]
