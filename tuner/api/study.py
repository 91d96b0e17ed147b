"""Studies: what was found, loaded from a storage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tuner.api.options import storage_text
from tuner.api.shown import Shown
from tuner.errors import DamagedStudyError, unknown_name
from tuner.measure.objective import Objective
from tuner.measure.recommendation import MUCH_LONGER
from tuner.paths import DEFAULT_STORAGE
from tuner.report import studycard
from tuner.report.emit import SERVING, Format
from tuner.result.document import advice_of, describe_line, describe_study
from tuner.result.load import LoadResult, load_of
from tuner.result.study import ONE, StudyLine, StudyResult
from tuner.result.wording import pointer, same_latency_pointer
from tuner.space.deployment import Deployment
from tuner.study.record import Record
from tuner.study.storage import find_in, open_storage, storage_errors
from tuner.study.storage import records as stored_records

if TYPE_CHECKING:
    import pandas as pd

    from tuner.job.selection import Selection

T = TypeVar("T")
REPORT_FORMATS = ("html", "md")
_OF_OTHERS = ("sh", "compose", "k8s", "systemd")
_PAGE_SNIPPETS = ("sh", "docker", "compose", "k8s", "tfserving", "systemd", "python")


class Study(Shown):
    """A study: its answer, and all that is known of it in `result`."""

    result: StudyResult

    def __init__(
        self,
        result: StudyResult,
        *,
        handle: str | None = None,
        storage: str = DEFAULT_STORAGE,
        load: Callable[[], LoadResult | None] = lambda: None,
    ) -> None:
        """Take a result; `handle` is what commands call the study, its name where that is not said.

        `load` returns what it does under load, if that was measured. It is read where it is needed.
        """
        self._handle, self._storage, self._read_load = handle or result.study, storage, load
        answer = self._load if result.objective is Objective.CAPACITY else None
        super().__init__(result, studycard.study_card(result, handle=self._handle, storage=storage, load=answer))

    @classmethod
    def of(cls, record: Record, storage: str) -> Study:
        """Return the study of a record; it is the last one of its storage."""
        handle = "last" if storage == DEFAULT_STORAGE else record.name
        return cls(describe_study(record), handle=handle, storage=storage, load=functools.partial(load_of, record))

    @functools.cached_property
    def _load(self) -> LoadResult | None:
        with storage_errors():
            return self._read_load()

    @property
    def name(self) -> str:
        """Return the name in the storage."""
        return self.result.study

    def better_with_instances(self, command: str = "emit") -> str | None:
        """Return what was proven of several processes, and which `command` gets it; None where one process is best.

        What is emitted or run of one process is then not the best that is known.
        """
        return pointer(self.result, command, self._handle, self._storage)

    def shorter_with_same_latency(self, *, instances: bool | None = None) -> str | None:
        """Return what was proven at the default's latency, and how to get it, if calls take much longer otherwise."""
        price = advice_of(self.result, groups=instances).latency
        is_long = price is not None and price.low > MUCH_LONGER
        return same_latency_pointer(self.result, self._handle, self._storage) if is_long else None

    def deployment(self, *, instances: bool | None = None, same_latency: bool = False) -> Deployment:
        """Return what to set: `env`, the variables, and what else there is to do, such as `cpus` and `arguments`.

        With `instances` that is what is best if several processes may run, without it what is best of one process. With
        None it is the first of the two that sets anything. With `same_latency` it is the fastest whose call takes no
        longer than the default's. Raises BadInputError without finals.
        """
        advice = advice_of(self.result, groups=instances, same_latency=same_latency)
        return studycard.deployment_of(self.result, advice)

    def emit(
        self,
        format: str = "sh",
        *,
        instances: bool | None = None,
        same_latency: bool = False,
        model: str | None = None,
    ) -> str:
        """Return a snippet that applies the recommendation, in a format of `tftune emit`.

        `instances` and `same_latency` are as in `deployment`. Of an ensemble, `model` names the one that the snippet is
        for.
        """
        if format not in list(Format):
            raise unknown_name("format", format, list(Format))
        advice = advice_of(self.result, groups=instances, same_latency=same_latency)
        is_best = same_latency or advice.deployment.processes > 1
        better = "" if is_best else self.better_with_instances() or ""
        return studycard.snippet(self.result, advice, Format(format), model=model, better=better, load=self._load)

    def report(self, format: str = "html") -> str:
        """Return the study as one page that needs nothing else: `html`, or `md` for a pull request."""
        if format not in REPORT_FORMATS:
            raise unknown_name("format", format, REPORT_FORMATS)
        from tuner.report import chart, studypage
        from tuner.report import load as drawn_load

        if format == "md":
            return studypage.markdown(self.result, self.card, self._snippets(("sh",)))
        charts = [*chart.all_of(self.result)]
        if self._load is not None:
            charts.append(("Under load", drawn_load.chart(self._load)))
        return studypage.html(self.result, self.card, self._snippets(_PAGE_SNIPPETS), charts)

    def trials(self) -> pd.DataFrame:
        """Return a row for each finished trial: setting, ratio to the default with its interval, status."""
        from tuner.report import frame

        return frame.trials([self.result])

    def _snippets(self, formats: Sequence[str]) -> dict[str, str]:
        """Return what applies the answers, by format; beside that on one process they are named."""
        study = self.result
        snippets: dict[str, str] = {}
        for of, advice in studycard.to_set(study).items():
            own = formats if of == ONE else [name for name in formats if name in _OF_OTHERS]
            for name in [] if advice.deployment.members else own:
                if name not in SERVING or study.framework.server_flags:
                    title, load = (name, self._load) if of == ONE else (f"{name}, {of}", None)
                    snippets[title] = studycard.snippet(study, advice, Format(name), load=load)
        return snippets


@storage_errors()
def load_study(name: str = "last", storage: str | Path | None = None) -> Study:
    """Return a stored study by its name, a unique prefix of it, or `last`; raises BadInputError where it is none."""
    url = storage_text(storage)
    record = find_in(url, name)
    return Study(describe_study(record), handle=name, storage=url, load=functools.partial(load_of, record))


def list_studies(
    storage: str | Path | None = None,
    *,
    since: str | None = None,
    machines: str | None = None,
    workloads: str | None = None,
) -> list[StudyLine]:
    """Return a line for each stored study that can be read, the oldest first, filtered as by `tftune list`."""
    from tuner.job.selection import Selection

    selection = Selection(since=since, machines=machines, workloads=workloads)
    return described(storage_text(storage), describe_line, selection)[0]


@storage_errors()
def described(
    storage_url: str,
    describe: Callable[[Record], T],
    selection: Selection,
    *,
    progress: Callable[[Sequence[Record]], Iterable[Record]] = lambda records: records,
) -> tuple[list[T], dict[str, list[str]]]:
    """Return what `describe` says of each selected study that can be read, and the names of the others by reason.

    Nothing where there is no storage. Raises BadInputError for filters that are none, or name what is not there.
    """
    selection.check()
    opened = open_storage(storage_url, create=False)
    if opened is None:
        return [], {}
    records, unreadable = stored_records(opened)
    exclusion_reason = selection.exclusion_reason(record.attributes().subject for record in records)
    results = []
    for record in progress(records):
        try:
            if exclusion_reason(record.attributes()) is None:
                results.append(describe(record))
        except DamagedStudyError as error:
            unreadable.setdefault(f"damaged: its {error.part} cannot be read", []).append(record.name)
    return results, unreadable
