"""One of two compared settings: its name as the user typed it, and its values on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import BadInputError, UnknownNameError, unknown_name
from tuner.job.job import Job
from tuner.result.document import advice_of, describe_study
from tuner.space import batches
from tuner.space.carrier import Preload
from tuner.space.deployment import Deployment
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.study.storage import LAST, find, no_study, open_storage, storage_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSetting:
    """One of the two: what the user called it, and what that is here."""

    name: str
    setting: Setting
    deployment: Deployment


def parse_compared(text: str, job: Job, storage_url: str, *, is_here: bool = True) -> ComparedSetting:
    """Return what `text` names: `knob=value,…` on top of the default, a baseline, or a study's recommendation.

    Raises BadInputError where it names nothing, or what cannot act here. Of a job on a machine that is not here, the
    build is not asked.
    """
    space = job.space
    if "=" in text:
        setting = space.reference.with_values(**_values(text, job))
    elif text in space.baselines:
        setting = space.baselines[text]
    elif any(each.name == text for each in space.catalogue.baselines):
        raise _missing_baseline(text, space, job.device.kind)
    else:
        setting = _recommended(text, job, storage_url)
    items = space.total_batch
    if items is not None and batches.total(setting) != items:
        n = int(setting[INSTANCES])
        raise BadInputError(
            f"'{text}' has steps of {batches.total(setting)} items, and --objective latency compares steps of {items}",
            f"add batch_size={items // n}" if items % n == 0 else f"give a --batch-size that {n} divides",
        )
    for name, value in setting.items:
        carrier = space.catalogue.knobs[name].carrier
        if isinstance(carrier, Preload) and carrier.is_missing(value, space.libraries):
            raise BadInputError(f"{name}={value}: this library is not installed", "install it first")
    if is_here:
        job.framework.check(job.build, [setting])
    return ComparedSetting(name=text, setting=setting, deployment=space.deployment(setting))


def _missing_baseline(name: str, space: Space, device: str) -> BadInputError:
    """Return the error for a baseline that a space does not have."""
    baseline = next(each for each in space.catalogue.baselines if each.name == name)
    needs = baseline.needs - space.domains.keys()
    if device not in baseline.devices:
        return BadInputError(
            f"{name} is for the {' and the '.join(baseline.devices)}, and this is for the {device}",
            f"expected one of {', '.join(space.baselines)}",
        )
    if needs:
        return BadInputError(f"{name} sets {', '.join(sorted(needs))}", "add --space serving, which has that")
    return BadInputError(
        f"{name} cannot share a batch of {space.total_batch} evenly among its processes", "give another --batch-size"
    )


def _values(text: str, job: Job) -> dict[str, Value]:
    """Return the values of `knob=value,…`."""
    values: dict[str, Value] = {}
    for part in job.space.catalogue.assignments(text):
        name, _, value = part.partition("=")
        parsed = job.space.catalogue.knob(name).parse(value, job.machine)
        if name in job.space.inactive:
            raise BadInputError(f"{name}={value} would have no effect: {job.space.inactive[name]}", "remove it")
        if name not in job.space.domains:
            raise BadInputError(
                f"{name} is not part of the search space '{job.space.name}'",
                "choose a --space that has it, or add it to a space file",
            )
        if values.get(name, parsed) != parsed:
            raise BadInputError(f"{name} is given twice in '{text}'", "keep one of them")
        values[name] = parsed
    return values


@storage_errors()
def _recommended(text: str, job: Job, storage_url: str) -> Setting:
    storage = open_storage(storage_url, create=False)
    if storage is None and text == LAST:
        raise no_study(text, storage_url)
    if storage is None:
        raise unknown_name("setting", text, job.space.baselines)  # nor can it be a study
    try:
        record = find(storage, text)
    except UnknownNameError as error:
        baseline_names = ", ".join(job.space.baselines)
        raise BadInputError(
            f"'{text}' is not a setting", f"expected knob=value,…, the name of a study, or one of {baseline_names}"
        ) from error
    result = describe_study(record)
    if result.framework is not job.framework:
        raise BadInputError(
            f"study {record.name} is of {result.framework.title}, and this comparison of {job.framework.title}",
            f"add --framework {result.framework.name}",
        )
    advice = advice_of(result)
    extra = advice.setting.keys() - job.space.domains.keys()
    if extra:
        raise BadInputError(
            f"study {record.name} sets {', '.join(sorted(extra))}, which the search space '{job.space.name}' does not "
            "have",
            "use the --space of that study",
        )
    return job.space.reference.with_values(**advice.setting)
