"""Load: requests at random times, which processes answer in batches, and what came of them (`tuner.child.arrivals`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tuner.trial.outcome import LATE

_MANY_MEMBERS = 1 << 12  # more than a group has: each has a seed of its own
_KEPT = 300  # responses, and batches of a process, of a load that is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`rate` requests of one item per second (1/s) for `duration_s` (s), the same for the same `seed`.

    A batch has at most the last of `sizes`, and is run in the smallest that it fits in. It waits at most `wait_s` (s)
    for more requests.
    """

    rate: float
    seed: int
    duration_s: float
    sizes: tuple[int, ...]
    wait_s: float

    def of(self, number: int, n_members: int) -> Load:
        """Return the load of one of several processes: requests are dealt out at random, as in a Poisson process."""
        return replace(self, rate=self.rate / n_members, seed=self.seed * _MANY_MEMBERS + number)

    def request(self) -> dict[str, object]:
        """Return what a child is asked."""
        return asdict(self) | {"sizes": list(self.sizes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that was answered: of how many requests, of which size, and its service time (s)."""

    n_requests: int
    size: int
    service_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What came of a load.

    `responses_s` are the times (s) from when a request was due until its answer, of all `n_requests` that count or of
    every k-th. They were due within `window_s` (s), and `elapsed_s` passed until the last was answered. `batches` are
    those of each process in their order, the first ones of many.
    """

    load: Load
    elapsed_s: float
    window_s: float
    n_requests: int
    responses_s: tuple[float, ...]
    batches: tuple[tuple[Batch, ...], ...]

    @property
    def keeps_up(self) -> bool:
        """Return whether requests were answered about as fast as they came."""
        return self.elapsed_s <= LATE * self.window_s

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data: some of the responses, and the first batches of each process."""
        stride = -(-len(self.responses_s) // _KEPT) or 1
        return {
            "load": self.load.request(),
            "elapsed_s": round(self.elapsed_s, 4),
            "window_s": round(self.window_s, 4),
            "n_requests": self.n_requests,
            "responses_s": list(self.responses_s[::stride]),
            "batches": [[(b.n_requests, b.size, b.service_s) for b in batches[:_KEPT]] for batches in self.batches],
        }

    @classmethod
    def from_report(cls, load: Load, report: Mapping[str, Any]) -> Served:
        """Return what a child reports of a load."""
        batches = tuple(Batch(n_requests=n, size=size, service_s=s) for n, size, s in report.get("batches", ()))
        return cls(
            load=load,
            elapsed_s=report.get("elapsed_s", 0.0),
            window_s=report.get("window_s", 0.0),
            n_requests=report.get("n_requests", 0),
            responses_s=tuple(report.get("responses_s", ())),
            batches=(batches,),
        )


def together(load: Load, served: Sequence[Served]) -> Served:
    """Return what processes answered at the same time, of a load that was dealt out to them."""
    return Served(
        load=load,
        elapsed_s=max(each.elapsed_s for each in served),
        window_s=max(each.window_s for each in served),
        n_requests=sum(each.n_requests for each in served),
        responses_s=tuple(seconds for each in served for seconds in each.responses_s),
        batches=tuple(batches for each in served for batches in each.batches),
    )
