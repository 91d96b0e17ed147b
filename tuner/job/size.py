"""How many copies of a setting carry a load: `tftune size`, from the load curves that studies have."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from tuner.errors import BadInputError
from tuner.job.parsed import positive
from tuner.job.request import SizeRequest
from tuner.quantity import MILLISECONDS, PER_SECOND, PERCENT
from tuner.result.load import LoadResult, SizeResult, SizeRow, size_row, stored_load
from tuner.study.record import Record
from tuner.study.storage import all_records, find, storage_errors, storage_with
from tuner.study.subject import Subject

_MOST_HEADROOM = 10.0


@storage_errors()
def size(request: SizeRequest) -> SizeResult:
    """Return how many copies of each setting carry a load, on all machines whose studies have curves of that workload.

    Raises BadInputError for what cannot be asked, and where no study of the workload has a curve.
    """
    rate = positive(request.rate, PER_SECOND, "--rate")
    limit_ms = positive(request.max_p99_ms, MILLISECONDS, "--max-p99")
    headroom = PERCENT.parse(request.headroom, "--headroom") / 100
    if not 0 <= headroom <= _MOST_HEADROOM:
        raise BadInputError(f"--headroom is {request.headroom}", "expected a percentage of at least 0, e.g. 20%")
    costs = _costs(request.costs)
    storage = storage_with(request.storage, request.study)
    named = find(storage, request.study)
    subject = named.attributes().subject
    rows: list[SizeRow] = []
    loads: list[LoadResult] = []
    for record in all_records(storage):
        load = _load_of(record, subject)
        if load is None:
            continue
        loads.append(load)
        machine = record.attributes().subject.machine
        cpus = min(machine.cpu_quota or machine.logical_cpus, machine.logical_cpus)
        cost = costs.get(record.name, costs.get(machine.id))
        row = functools.partial(size_row, load, machine=machine.id, cpus=cpus, cost=cost)
        rows += [row(curve, rate=rate, limit_ms=limit_ms, headroom=headroom) for curve in load.curves]
    if not loads:
        raise BadInputError(
            f"no study of {subject.workload.name} was measured under load",
            f"tftune load {named.name} --max-p99 {limit_ms:g}ms",
        )
    unknown = costs.keys() - {row.study for row in rows} - {row.machine for row in rows}
    if unknown:
        known = ", ".join(dict.fromkeys(name for row in rows for name in (row.machine, row.study)))
        raise BadInputError(f"--cost names {min(unknown)}", f"expected a machine or a study of: {known}")
    rows.sort(key=lambda row: (row.copies is None, row.cost is None, row.cost or 0.0, row.total_cpus))
    return SizeResult(
        workload=subject.workload.name,
        item=loads[-1].item,
        rate=rate,
        limit_ms=limit_ms,
        headroom=headroom,
        rows=tuple(rows),
    )


def _load_of(record: Record, subject: Subject) -> LoadResult | None:
    """Return the load curves of a study of that workload, None of others."""
    if record.get("loads") is None:
        return None
    own = record.attributes().subject.workload
    is_same = (own.name, own.mode, own.params) == (
        subject.workload.name,
        subject.workload.mode,
        subject.workload.params,
    )
    return stored_load(record) if is_same else None


def _costs(texts: Sequence[str]) -> Mapping[str, float]:
    """Return the cost of a copy on each machine, or of each study; raises BadInputError."""
    costs = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        try:
            costs[name] = float(amount)
        except ValueError:
            raise BadInputError(
                f"--cost {text}", "expected MACHINE=AMOUNT or STUDY=AMOUNT, e.g. c5.xlarge=0.17"
            ) from None
        if not name or not costs[name] > 0:
            raise BadInputError(f"--cost {text}", "expected a name, and an amount above 0")
    return costs
