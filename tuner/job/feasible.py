"""Leaving out the batch sizes that a model cannot run at, before anything is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.job.feed import fixed_batch_size, possible_sizes, why_fixed
from tuner.job.job import Job, prepare
from tuner.job.request import ParsedRequest
from tuner.workload.workload import Kind


def feasible(job: Job, checked: ParsedRequest, *, notify: Callable[[str], None] = lambda _: None) -> Job:
    """Return a prepared job with those of its batch sizes alone that the inputs of its models leave possible.

    It is as it was where that is all of them, or none: starting it says why. `notify` is called with what is left out.
    A Python file makes its inputs for any batch size.
    """
    asked = [int(size) for size in job.space.domains.get("batch_size", ())]
    is_found = any(model.kind not in (Kind.PYTHON, Kind.COMMAND) for model in job.models)
    if not is_found or len(asked) < 2 or job.space.total_batch is not None:
        return job
    job.export(notify=notify)
    described = job.described_inputs()
    possible = possible_sizes(asked, described)
    if possible in ([], asked):
        return job
    reasons = (
        why_fixed(model.name, own)
        for model, own in zip(job.models, described, strict=True)
        if fixed_batch_size(own) is not None
    )
    left_out = ", ".join(str(size) for size in asked if size not in possible)
    note = f"{next(reasons)}: {left_out} is left out"
    notify(note)
    return replace(prepare(replace(checked, batch_sizes=possible)), batch_note=note)
