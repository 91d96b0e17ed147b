"""A queue before a model: how long requests take at a rate, from how long the model takes for batches.

Requests come as a Poisson process and are dealt out at random to n processes, each of which has c callers. A free
caller takes up to B requests that wait, at most T after the first of them was due. A run of a few seconds meets too few
requests to know the 99th percentile, which the next run would put elsewhere. But it knows how long batches take. So the
arrivals are simulated, fifty thousand of them, and the service times are those measured:

    log s = a_b + g_λ + u_r + e        service time (s) of a batch of size b, at the rate λ, in round r

Notation
    λ, L   rate (1/s) of all requests together, and limit (s) on a quantile of their responses
    a_b    of each batch size; between sizes that were seen, linear in log b
    g_λ    what the rate does to all sizes (other processes are at work, too, and clocks and caches change); between
           rates that were measured, linear in λ
    u_r    what processes of a round have in common, with mean 0: its scatter is the uncertainty of all that follows
    e      the rest, replayed for each size in the order in which it was measured, as stalls come in bursts; one that
           trebles the time of a small batch is a small part of a large one's
    C(L)   capacity: the highest rate at which the quantile is at most L

A change of all service times by a factor f is a change of the clock: C(L; f s, f T) = C(L/f; s, T) / f.

Sources: Kleinrock (1975), Queueing Systems I; the knee, where rate over response time is largest: Kleinrock (1979),
Power and deterministic rules of thumb for probabilistic problems in computer communications, ICC.
"""

from __future__ import annotations

import bisect
import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tuner.child.arrivals import NOT_COUNTED, due_times
from tuner.stats.estimate import Array, Estimate
from tuner.stats.moderation import moderated_estimate
from tuner.stats.noise import PRIOR_DF, PRIOR_NOISE
from tuner.trial.load import Served

N_REQUESTS = 50_000
"""So many requests are simulated: 500 of them take longer than the 99th percentile."""
_WARM = 0.05  # of the requests, the first ones, which meet an empty queue
_N_BISECTIONS = 8  # each halves what is not known of a rate: a twentieth of the saturation
_N_REPLAYS = 8  # of a load, each with other service times
_STEP = 0.03  # log, of a derivative
_GRID = np.array([0.02, 0.05, *np.arange(0.1, 0.96, 0.05), 0.98])  # of the saturation, where a curve is drawn
_N_ROUGH = 20_000  # requests, to choose between batches
_WAITS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # shares of the limit: how long batches may wait
_CLEARLY = 1.02  # times: so much more has a longer wait to carry
_LEAST_FACTORS = 30  # batches of a size, so that they have a tail of their own
_LEAST_SEEN = 3  # batches of a size at a rate, so that it counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How requests become batches of one of `sizes`, which wait at most `wait_s` (s), in each of `processes`."""

    sizes: tuple[int, ...]
    wait_s: float
    processes: int
    callers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """How long batches take; see the module for the notation.

    `log_s` (B,) and `shift` (R,) are a_b of `sizes` and g_λ of `rates`, and `round_log` (rounds,) is u_r. `rest` (B,)
    has e of each run of batches of a size.
    """

    sizes: Array
    log_s: Array
    rates: Array
    shift: Array
    round_log: Array
    rest: tuple[tuple[Array, ...], ...]

    def service_s(self, sizes: Sequence[int], rate: float) -> Array:
        """Return how long a batch of each size takes (s) at a rate (1/s) of all requests together."""
        a = np.interp(np.log(sizes), np.log(self.sizes), self.log_s)
        return np.asarray(np.exp(a + np.interp(rate, self.rates, self.shift)))

    def factors(self, size: int, rng: np.random.Generator) -> Array:
        """Return e^e of the nearest size that was measured, or of all if it was seldom; its runs in any order."""
        runs = self.rest[int(np.argmin(abs(np.log(self.sizes) - math.log(size))))]
        if sum(map(len, runs)) < _LEAST_FACTORS:
            runs = tuple(run for of_size in self.rest for run in of_size)
        return np.asarray(np.exp(np.concatenate([runs[i] for i in rng.permutation(len(runs))])))

    def scale(self) -> Estimate:
        """Return the estimate of the factor (log) on all service times: 0, with its standard error."""
        return scale_estimate(self.round_log)


def scale_estimate(round_log: Array) -> Estimate:
    """Return the mean of what rounds (n,) differ by (log), moderated: few rounds may agree by chance."""
    sd = math.hypot(PRIOR_NOISE.process_sd, PRIOR_NOISE.block_sd / 2)
    return moderated_estimate(round_log, prior_sd=sd, prior_df=PRIOR_DF)


def service_times(rounds: Sequence[Sequence[Served]]) -> ServiceTimes:
    """Return what the loads of each round say of how long batches take, by weighted least squares.

    Raises ValueError where no batch was measured.
    """
    cells: dict[tuple[int, float, int], list[float]] = {}
    runs: list[tuple[int, float, list[int], list[float]]] = []
    for number, loads in enumerate(rounds):
        for served in loads:
            for batches in served.batches:
                sizes, log_s = [b.size for b in batches], [math.log(max(b.service_s, 1e-7)) for b in batches]
                runs.append((number, served.load.rate, sizes, log_s))
                for size, value in zip(sizes, log_s, strict=True):
                    cells.setdefault((size, served.load.rate, number), []).append(value)
    if not cells:
        raise ValueError("no batch was measured")
    counted = {key: values for key, values in cells.items() if len(values) >= _LEAST_SEEN} or cells
    all_sizes, rates = sorted({k[0] for k in counted}), sorted({k[1] for k in counted})
    n_b, n_r, n = len(all_sizes), len(rates), len(rounds)
    x, y, w = np.zeros((len(counted), n_b + n_r + n)), np.zeros(len(counted)), np.zeros(len(counted))
    for row, ((size, rate, number), values) in enumerate(counted.items()):
        x[row, [all_sizes.index(size), n_b + rates.index(rate), n_b + n_r + number]] = 1
        y[row], w[row] = math.log(np.mean(np.exp(values))), math.sqrt(len(values))
    # Of the solutions the one of least norm: then Σ g and Σ u are shared out with a, and taken from there.
    beta = np.linalg.lstsq(w[:, None] * x, w * y, rcond=None)[0]
    a, g, u = beta[:n_b], beta[n_b : n_b + n_r], beta[n_b + n_r :]
    seen = np.array([any(key[2] == number for key in counted) for number in range(n)])
    a, g, u = a + g.mean() + u[seen].mean(), g - g.mean(), u[seen] - u[seen].mean()
    fitted = ServiceTimes(
        sizes=np.array(all_sizes, float), log_s=a, rates=np.array(rates), shift=g, round_log=u, rest=()
    )
    by_round = dict(zip(np.flatnonzero(seen), u, strict=True))
    rest: list[list[Array]] = [[] for _ in all_sizes]
    for number, rate, sizes, log_s in runs:
        if number in by_round and len(sizes):
            e = np.array(log_s) - np.log(fitted.service_s(sizes, rate)) - by_round[number]
            for of_size, size in zip(rest, all_sizes, strict=True):
                if size in sizes:
                    of_size.append(e[np.array(sizes) == size])
    return replace(fitted, rest=tuple(map(tuple, rest)))


def responses(
    due_s: Sequence[float], batching: Batching, service_s: Sequence[float], factors: Sequence[Sequence[float]]
) -> tuple[Array, float]:
    """Return the responses (s) of the requests of one process that are due at these times, and the mean batch.

    A batch of each size takes `service_s`, times one of the size's `factors` after the other, again from the first on.
    """
    sizes, wait_s, most = batching.sizes, batching.wait_s, batching.sizes[-1]
    size_of = [0] + [bisect.bisect_left(sizes, n) for n in range(1, most + 1)]
    free_s = [0.0] * batching.callers
    first, n, n_batches = 0, len(due_s), [0] * len(sizes)
    ends: list[float] = []
    taken: list[int] = []
    while first < n:
        complete_s, last = due_s[first] + wait_s, first + most
        if wait_s and last <= n:
            complete_s = min(complete_s, due_s[last - 1])
        begin_s = max(free_s[0], complete_s)
        end = max(first + 1, bisect.bisect_right(due_s, begin_s, first, min(last, n)))
        size = size_of[end - first]
        end_s = begin_s + service_s[size] * factors[size][n_batches[size] % len(factors[size])]
        heapq.heapreplace(free_s, end_s)
        ends.append(end_s)
        taken.append(end - first)
        n_batches[size] += 1
        first = end
    return np.repeat(ends, taken) - np.asarray(due_s), float(np.mean(taken))


def kept_rate(rates: Array, logs: Array, limit: float) -> float:
    """Return the highest rate of a curve at which a quantile (log) keeps to a limit (log); 0 if none does.

    `rates` and `logs` (n,) are the points of the curve, between which it is linear.
    """
    kept = np.flatnonzero(logs <= limit)
    if not len(kept):
        return 0.0
    last = int(kept[-1])
    if last + 1 == len(rates):
        return float(rates[last])
    return float(np.interp(limit, logs[last : last + 2], rates[last : last + 2]))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A setting under load: how requests become batches, and how long these take."""

    batching: Batching
    times: ServiceTimes
    seed: int = 0
    n_requests: int = N_REQUESTS
    _cache: dict[float, tuple[Array, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def _draws(self) -> tuple[Array, list[list[float]]]:
        """Return what is the same at every rate: unit gaps between requests, and the factors of each size's times."""
        rng = np.random.default_rng(self.seed)
        gaps = rng.exponential(size=self.n_requests)  # first: the same for all batches that are compared
        return gaps, [self.times.factors(size, rng).tolist() for size in self.batching.sizes]

    @property
    def saturation(self) -> float:
        """Return the rate (1/s) that is answered where requests always wait: full batches, one after another."""
        of, most = self.batching, self.batching.sizes[-1:]
        full_s = float(self.times.service_s(most, float(self.times.rates[-1]))[0])
        return of.processes * of.callers * most[0] / full_s / float(np.mean(self._draws[1][-1]))

    def at(self, rate: float) -> tuple[Array, float]:
        """Return the responses (s), sorted, at a rate (1/s) of all requests together, and the mean batch."""
        if rate not in self._cache:
            gaps, factors = self._draws
            due_s = np.cumsum(gaps) * (self.batching.processes / rate)
            service_s = self.times.service_s(self.batching.sizes, rate).tolist()
            simulated, batch = responses(due_s.tolist(), self.batching, service_s, factors)
            self._cache[rate] = np.sort(simulated[int(_WARM * len(simulated)) :]), batch
        return self._cache[rate]

    def quantile(self, rate: float, p: float) -> float:
        """Return a quantile of the responses (s) at a rate (1/s)."""
        simulated = self.at(rate)[0]
        return float(simulated[min(len(simulated) - 1, int(p * len(simulated)))])

    def rates(self) -> Array:
        """Return the rates (1/s) at which a curve is drawn, shape (n,)."""
        return _GRID * self.saturation

    def capacity(self, limit_s: float, p: float = 0.99) -> float:
        """Return C(L), the highest rate (1/s) at which the p-quantile keeps to the limit; 0 if none does."""
        edges = [0.0, *map(float, self.rates())]
        below, above = 0, len(edges)  # of the edges: one that keeps to it, and one that does not
        while above - below > 1:
            at = (below + above) // 2
            below, above = (at, above) if self.quantile(edges[at], p) <= limit_s else (below, at)
        low, high = edges[below], edges[min(above, len(edges) - 1)]
        for _ in range(_N_BISECTIONS if high > low else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if self.quantile(middle, p) <= limit_s else (low, middle)
        return low

    def knee(self, p: float = 0.99) -> float:
        """Return the rate (1/s) at which the rate over the p-quantile is largest: beyond it, waiting buys little."""
        rates = self.rates()
        return float(rates[int(np.argmax([rate / self.quantile(rate, p) for rate in rates]))])

    def capacity_estimate(self, limit_s: float, p: float = 0.99) -> Estimate | None:
        """Return log C(L) with the standard error that rounds leave; None where no rate keeps to the limit."""
        capacity, scale = self.capacity(limit_s, p), self.times.scale()
        if not capacity:
            return None
        return replace(scale, mean=math.log(capacity), se=scale.se * self.elasticity(limit_s, p))

    def elasticity(self, limit_s: float, p: float = 0.99) -> float:
        """Return −d log C / d log s: by how many percent 1 % longer service times lower the capacity."""
        slow, fast = (self.capacity(limit_s * math.exp(h), p) for h in (-_STEP, _STEP))
        return 1.0 + (math.log(fast / slow) / (2 * _STEP) if slow else math.inf)

    def tuned(self, limit_s: float, p: float = 0.99) -> Queue:
        """Return the queue with those batches, of these sizes at most, that carry most within a limit (s).

        A longer wait or a larger batch has to carry clearly more.
        """
        best, most, rough = self.batching, 0.0, replace(self, n_requests=min(self.n_requests, _N_ROUGH), _cache={})
        sizes = self.batching.sizes
        for n in range(1, len(sizes) + 1):
            for share in _WAITS if sizes[n - 1] > 1 else _WAITS[:1]:
                other = rough.batched(sizes[:n], share * limit_s)
                if not most or other.quantile(_CLEARLY * most, p) <= limit_s:
                    capacity = other.capacity(limit_s, p)
                    best, most = (other.batching, capacity) if capacity > most else (best, most)
        return self.batched(best.sizes, best.wait_s)

    def batched(self, sizes: tuple[int, ...], wait_s: float) -> Queue:
        """Return the queue with other batches."""
        return replace(self, batching=replace(self.batching, sizes=sizes, wait_s=wait_s), _cache={})

    def replayed_ratio(self, served: Served) -> float:
        """Return how long the same requests take by this model, over what they took: the ratio of the means."""
        load, n = served.load, self.batching.processes
        factors = self._draws[1]
        service_s = self.times.service_s(self.batching.sizes, load.rate).tolist()
        replayed: list[float] = []
        for own in (load.of(number, n) if n > 1 else load for number in range(n)):
            due_s = due_times(random.Random(own.seed), own.rate, own.duration_s)
            counts = np.array(due_s) >= NOT_COUNTED * own.duration_s
            for replay in range(_N_REPLAYS):  # stalls come in bursts
                begun = [
                    of_size[(start := replay * len(of_size) // _N_REPLAYS) :] + of_size[:start] for of_size in factors
                ]
                simulated, _ = responses(due_s, self.batching, service_s, begun)
                replayed += simulated[counts].tolist()
        return float(np.mean(replayed)) / float(np.mean(served.responses_s))
