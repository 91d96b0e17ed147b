"""Checking a shipped recommendation: does it still help, here and now? For a nightly job.

A check is another session of its study: what it finds is kept there, and the verdict is that of all sessions together.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.errors import BadInputError, TunerError
from tuner.frameworks import registry
from tuner.job.compare import A, B, Comparison, measure
from tuner.job.events import ComparisonEvents
from tuner.job.job import Job, prepare
from tuner.job.request import DEFAULT_SPACE, Checked, Request
from tuner.job.request import check as understand
from tuner.job.side import Side
from tuner.machine.exclusive import measuring_alone
from tuner.measure.constraint import Limits
from tuner.measure.objective import OF_MODELS, Objective
from tuner.report import evidence, sessions
from tuner.report.document import advice_of, describe_study
from tuner.search.record import Record, now
from tuner.search.storage import check_storage, find, open_storage, storing
from tuner.space import spacefile
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.equivalence import Word
from tuner.stats.pooling import Together
from tuner.stats.tail import Kept
from tuner.workload.asked import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The comparison of a study's recommendation with the default; None where the default is what it recommends.

    `whole` is what all sessions of the study say together, this one among them.
    """

    study: str
    comparison: Comparison | None
    whole: Together | None = None
    kept: dict[str, Kept] = field(default_factory=dict)
    """Whether the default (a) and the recommendation (b) keep to the study's limits; empty where it has none."""
    closest_s: float | None = None
    """The time (s) between the two sessions that lie closest; None where that is not known."""

    @property
    def helps(self) -> bool | None:
        """Return whether it is better, False where it is shown not to be, None where nothing was decided.

        Where sessions disagree, this one counts: what helped once and is shown not to help today, does not. Under
        limits it has to keep to them, and helps already where the default does not.
        """
        if self.comparison is None or self.whole is None:
            return None
        if self.comparison.verdict.speedup is None:
            return None
        if self.kept.get(B) is Kept.NO:
            return False
        if self.kept.get(A) is Kept.NO:
            return True
        word = self.comparison.verdict.word if self.whole.disagree else self.whole.verdict.word
        if word is Word.BETTER:
            return None if self.whole.disagree else True
        return None if word is Word.UNDECIDED else False


def checkup(
    study: str,
    *,
    storage_url: str,
    python: str | None,
    budget: str,
    trial_timeout: str | None,
    margin: float | None,
    wait: bool,
    events: ComparisonEvents,
) -> Checkup:
    """Measure a study's recommendation against the default, on this machine as it is now.

    The margin is that of the study's own finals, if no other is given.

    Raises BadInputError where there is no such study, its workload is gone, or it was made with another machine,
    build or workload, whose sessions are not comparable.
    """
    storage = open_storage(storage_url, create=False)
    if storage is None:
        raise BadInputError(f"no study '{study}': {storage_url} does not exist", "begin with: tftune search resnet50")
    check_storage(storage_url)  # what is measured is to be kept there
    record = find(storage, study)
    described = describe_study(record)
    advice_of(described)
    advice = described["finals"]["advice"]  # of the finals: what sessions together did not bear out may come to
    default_name = record.catalogue.default
    if advice["source"] == default_name:
        return Checkup(study=record.name, comparison=None)
    settings = (described["baselines"][default_name]["setting"], advice["setting"])
    batch_sizes = {int(setting["batch_size"]) for setting in settings}
    checked = _understood(record, batch_sizes, python=python, budget=budget, trial_timeout=trial_timeout)
    default = Setting.of(described["baselines"][default_name]["setting"])
    batch = Deployment(arguments={"batch_size": default.batch_size})
    margin = described["finals"]["margin"] if margin is None else margin
    with measuring_alone(wait=wait, waiting=events.waiting):
        job = prepare(checked)
        refuse_elsewhere(record, job)
        made = measure(
            job,
            Side(asked=default_name, setting=default, deployment=batch),
            Side(
                asked=f"study {record.name}",
                setting=Setting.of(advice["setting"]),
                deployment=Deployment.from_dict(advice),
            ),
            checked,
            margin=margin,
            events=events,
        )
    for name, text in made.failures.items():
        if made.ended == "failed" or not any(name in round_.slices for round_ in made.rounds):
            raise TunerError(f"{'the default' if name == A else 'the recommendation'} {text}", "it does not run here")
    with storing():
        record.put("checks", [*record.get("checks", []), made.to_dict()])
        record.put("updated", now())
    limits = Limits.from_dict(record.get("limits", {}))
    kept = evidence.kept(made.rounds, (A, B), limits) if limits else {}
    held = sessions.of_setting(record, Setting.of(advice["setting"]))
    whole = sessions.all_together(held, level=made.level or 0.95, margin=margin)
    return Checkup(study=record.name, comparison=made, whole=whole, kept=kept, closest_s=sessions.closest_s(held))


def _understood(
    record: Record, batch_sizes: Collection[int], *, python: str | None, budget: str, trial_timeout: str | None
) -> Checked:
    """Return the request that the study was, in the folder that it was made in."""
    asked = dict(record.get("asked"))
    interpreter = record.get("python") if python is None else str(Path(shutil.which(python) or python).absolute())
    space = record.get("described", {}).get("space")
    framework = registry.of(record.get("described", {}).get("runtime", {}))
    objective = Objective(record.get("objective"))
    try:
        with contextlib.chdir(asked.pop("folder")):
            return understand(
                Request(
                    workload=replace(Asked.from_dict(asked), framework=framework.name),
                    space=space if space in spacefile.names(framework.spaces) else DEFAULT_SPACE,
                    python=interpreter,
                    objective=objective.value if objective in OF_MODELS else Objective.THROUGHPUT.value,
                    time_budget=budget,
                    trial_timeout=trial_timeout or record.get("trial_timeout"),
                    batch_size=",".join(map(str, sorted(batch_sizes))),
                ),
                stores=False,
            )
    except (BadInputError, OSError) as error:
        said = error.message if isinstance(error, BadInputError) else str(error)
        raise BadInputError(
            f"the workload of study {record.name} cannot be used: {said}", "put it back, or search again"
        ) from error


def refuse_elsewhere(record: Record, job: Job) -> None:
    """Raise BadInputError where the study was made on something else than what is here."""
    described = record.get("described", {})
    changed = [
        what
        for what, there, here in (
            ("machine", described["machine"]["id"], job.machine.id),
            ("build", described["runtime"]["id"], job.build.id),
            ("workload", described["workload"]["fingerprint"], job.workload.fingerprint),
            ("environment (variables that change timings)", described.get("environment", {}), job.environment),
        )
        if there != here
    ]
    if changed:
        raise BadInputError(
            f"study {record.name} was made with another {' and another '.join(changed)}",
            "its sessions cannot be compared with one here: search again, or `tftune compare` the two settings",
        )
