"""The search space of a request, on a build and a machine."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.devices.registry import DEFAULT as DEFAULT_DEVICE
from tuner.errors import BadInputError
from tuner.frameworks.framework import Build
from tuner.job.parsed import ParsedRequest
from tuner.job.request import MAY_CHANGE
from tuner.measure.objective import Objective
from tuner.space.space import Canonicalize, Space, resolve
from tuner.workload.pyfile import TRAINING


def space_of(
    checked: ParsedRequest,
    build: Build,
    *,
    env: Mapping[str, str],
    libraries: Mapping[str, str],
    spelling: Canonicalize,
    unavailable: Mapping[str, str],
) -> Space:
    """Return the space of a request on a build; `spelling` and `unavailable` are what the build says of the machine."""
    untold = _has_fixed_batch(checked)
    return resolve(
        checked.file,
        catalogue=checked.catalogue,
        machine=checked.machine,
        build=build,
        workload=checked.workload,
        pins=checked.pins,
        batch_sizes=checked.batch_sizes or ([checked.workload.batch_size] if untold else None),
        passes_batch_size=not untold,
        fixed_batch=checked.objective.has_fixed_batch,
        splits_batch=checked.objective is Objective.LATENCY,
        inherited=env,
        libraries=libraries,
        spelling=spelling,
        with_groups=checked.with_groups and _may_be_several(checked),
        unavailable={**unavailable, **_concurrency_unavailable(checked), **_numerics_unavailable(checked)},
        device=checked.device.kind,
        maker=checked.device.maker,
    )


def _concurrency_unavailable(checked: ParsedRequest) -> dict[str, str]:
    """Return why knobs of several calls at once stay out; raises BadInputError where one is asked for all the same."""
    reasons: dict[str, str] = {}
    if checked.workload.mode == TRAINING:
        reasons["streams"] = "training steps change one model, so they run one after another"
        if int(checked.pins.get("streams", "1")) > 1:
            raise BadInputError(f"streams={checked.pins['streams']}: {reasons['streams']}", "remove it")
    if checked.objective is Objective.LATENCY:
        reasons["streams"] = "--objective latency times one batch at a time"
    return reasons


def _numerics_unavailable(checked: ParsedRequest) -> dict[str, str]:
    """Return why knobs that compute in another precision stay out; raises BadInputError where one is asked for."""
    if checked.may_change_numerics:
        return {}
    on, knobs = (checked.device.kind, checked.device.maker), checked.catalogue.knobs
    names = [name for name, knob in knobs.items() if knob.changes_numerics and knob.why_not_on(*on) is None]
    pinned = next((name for name in names if name in checked.pins), None)
    if pinned is not None:
        raise BadInputError(
            f"{pinned}={checked.pins[pinned]} changes numerics", f"add --numerics {MAY_CHANGE} to allow that"
        )
    reason = f"it changes numerics, which --numerics {MAY_CHANGE} allows"
    return {name: reason for name in names if name in checked.file.domains}


def _may_be_several(checked: ParsedRequest) -> bool:
    """Return whether a workload may run in several processes for more throughput: a model that serves requests.

    Several processes on one GPU share it by turns, so that there is nothing to gain without more than that.
    """
    workload = checked.workload
    if checked.device.kind != DEFAULT_DEVICE:
        return False
    is_model = workload.command is None and not workload.members
    return is_model and workload.mode != TRAINING and checked.objective is not Objective.LATENCY


def _has_fixed_batch(checked: ParsedRequest) -> bool:
    """Return whether a command is not told a batch size: it has no place for one, and nobody asked for one."""
    command = checked.workload.command
    is_requested = checked.batch_sizes is not None or "batch_size" in checked.pins
    return command is not None and "batch_size" not in command.placeholders and not is_requested
