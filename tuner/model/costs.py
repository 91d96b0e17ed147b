"""What each operator takes: from a profile, for any number of threads, batch size and machine.

Notation, for operator i
    t_i(n, b)   time (s) that was measured with n threads at batch size b, nothing else running
    B_i(b)      bytes moved, B_i(b) = B0_i + B1_i b
    w_i(n, b)   the time that they take: B_i(b) ((1 − f) / (g n W(1)) + f / W(n)); of what a cache of L bytes does not
                hold, f = max(0, 1 − L / B_i(b)), it comes from memory, the rest from the cache, g times as fast
    μ_i         how much of that is seen, at most 1; the operator before may have left its output nearer
    R_i(b)      all else, R_i(b) = o_i + γ_i b: arithmetic, code, the call itself
    σ_i         the share of R_i that two threads do not divide
    ψ(n)        what is left of that with n threads: (1 − η) + η (1 + log2 n) / n. The first part is serial; of the
                other, threads lose as much with every doubling of their number: uneven shares, caches, clocks
    n_i         threads that work on it: of an operator of Eigen's no more than there are grains of work
    r           what a hop to another thread costs. An operator that is divided takes h(n) = 2 + log2(n) in a row. They
                lead to the first of its threads, on to the others, each of which wakes another one, and back to the
                thread that waits. Of a team's threads, only those on other CPUs count

    T_i(n, b) = R_i(b) (σ_i ψ(n_i) + (1 − σ_i) / n_i) + μ_i w_i(n_i, b) + r h(n_i)

All of that is of one run; an operator of a loop runs several times in a step, and its times are added up.

Few times are measured, and each is noisy, so that r is one for all operators, and σ_i is drawn towards that of all
operators of its type. The two are told apart by batch sizes: what σ costs grows with the work, and r does not.
Sources: Amdahl's law (AFIPS 1967); the roofline (Williams et al., CACM 2009); Eigen's cost model of threads; g and the
grain are `Terms` of `tuner.model.hardware`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from tuner.model.hardware import TERMS, Hardware, Terms
from tuner.model.profile import Profile, plain
from tuner.stats.estimate import Array

_LIBRARY = "_Mkl"  # what the names of oneDNN's operators begin with
_CALM_S = 0.5e-3  # an operator of which half of what is measured of σ is believed, and half of its type
_PRIOR_SHARE, _PRIOR_S = 0.1, 0.2e-3  # σ of a type of which nothing is known, and how much that counts
_SERIAL = 0.3  # of 1 − σ: below it η falls, to 0 for an operator that two threads do not divide at all
_SHORT_S = 10e-6  # times below this are as noisy as this


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The coefficients of all operators, each of shape (operators,); see the notation above."""

    fixed_s: Array
    per_item_s: Array
    fixed_bytes: Array
    bytes_per_item: Array
    seen: Array
    serial: Array
    library: NDArray[np.bool_]
    """Whether it is oneDNN's, whose threads are a team of OpenMP's in some builds."""
    runs: Array
    """How often it runs in a step."""
    fork_s: float
    """r (s)."""
    is_divided: bool = True
    """Whether steps were profiled with several threads that each had a core; else σ and r are guesses."""
    asleep_s: float = 0.0
    """What each parallel loop takes longer (s) where its threads have gone to sleep."""
    terms: Terms = TERMS

    def rest_s(self, batch_size: float) -> Array:
        """Return R_i(b)."""
        return self.fixed_s + self.per_item_s * batch_size

    def n_bytes(self, batch_size: float) -> Array:
        """Return B_i(b)."""
        return self.fixed_bytes + self.bytes_per_item * batch_size

    def time_s(self, n: float, batch_size: float, hardware: Hardware) -> Operating:
        """Return what all operators take in a step with n threads each, alone on a machine."""
        rest_s, n_bytes = self.rest_s(batch_size), self.n_bytes(batch_size)
        missed_share = missed(n_bytes, hardware)
        threads = self._threads(n, rest_s, n_bytes, missed_share, hardware)
        eta = self.terms.eta * np.minimum(1.0, (1 - self.serial) / _SERIAL)
        parallel_s = rest_s * (1 - self.serial + self.serial * eta * (1 + np.log2(threads))) / threads
        cache_s = self.seen * from_cache_s(n_bytes, missed_share, threads, hardware)
        memory_s = self.seen * from_memory_s(n_bytes, missed_share, threads, hardware)
        waking_s = self.fork_s * hops(threads) + self.asleep_s * (threads > 1)
        serial_s = rest_s * self.serial * (1 - eta) + hardware.waking * waking_s
        # Threads beyond those that fill the memory wait for it.
        moving = np.minimum(threads, hardware.most_bytes_s / hardware.one_bytes_s)
        return Operating(
            time_s=self.runs * (serial_s + parallel_s + cache_s + memory_s),
            serial_s=self.runs * serial_s,
            busy_s=self.runs * (serial_s + threads * (parallel_s + cache_s) + moving * memory_s),
            memory_s=self.runs * memory_s,
            moved=self.runs * self.seen * n_bytes * missed_share,
        )

    def threads(self, n: float, batch_size: float, hardware: Hardware) -> Array:
        """Return n_i, where n threads are free."""
        n_bytes = self.n_bytes(batch_size)
        return self._threads(n, self.rest_s(batch_size), n_bytes, missed(n_bytes, hardware), hardware)

    def _threads(self, n: float, rest_s: Array, n_bytes: Array, missed_share: Array, hardware: Hardware) -> Array:
        one_s = rest_s + self.seen * moving_s(n_bytes, missed_share, 1.0, hardware)
        grains = np.maximum(1.0, one_s / self.terms.grain_s)
        return np.asarray(np.where(self.library, n, np.minimum(n, grains)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """Operators, or parts of a step, alone on a machine, each of shape (parts,).

    How long they take (s), the part of that in which one thread works (s), the CPU time of all their threads (s), the
    part of their time in which data comes from memory (s), and the bytes that do.
    """

    time_s: Array
    serial_s: Array
    busy_s: Array
    memory_s: Array
    moved: Array

    def summed(self, parts: NDArray[np.intp], n_parts: int) -> Operating:
        """Return the sums over operators of the same part; `parts` has shape (operators,)."""
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        return Operating(
            **{name: np.bincount(parts, each, n_parts).astype(np.float64) for name, each in arrays.items()}
        )

    def where(self, mask: NDArray[np.bool_], other: Operating) -> Operating:
        """Return these operators where the mask is true, and another's where not."""
        pairs = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        return Operating(**{name: np.where(mask, *pair) for name, pair in pairs.items()})


def moving_s(n_bytes: Array, missed_share: Array, threads: Array | float, hardware: Hardware) -> Array:
    """Return w(n, b) of bytes (s) of which a cache misses a share f, shape (operators,)."""
    parts = (part(n_bytes, missed_share, threads, hardware) for part in (from_cache_s, from_memory_s))
    return np.asarray(sum(parts))


def from_cache_s(n_bytes: Array, missed_share: Array, threads: Array | float, hardware: Hardware) -> Array:
    """Return the part of w(n, b) (s) of what a cache holds, shape (operators,)."""
    n = np.maximum(1.0, threads)
    return np.asarray(n_bytes * (1 - missed_share) / (TERMS.cache_gain * n * hardware.one_bytes_s))


def from_memory_s(n_bytes: Array, missed_share: Array, threads: Array | float, hardware: Hardware) -> Array:
    """Return the part of w(n, b) (s) of what comes from memory, shape (operators,)."""
    n = np.maximum(1.0, threads)
    apart = np.where(n > hardware.cores_per_socket, 1 + (TERMS.remote - 1) * (1 - 1 / hardware.sockets), 1.0)
    return np.asarray(n_bytes * missed_share * apart / np.minimum(n * hardware.one_bytes_s, hardware.most_bytes_s))


def missed(n_bytes: Array, hardware: Hardware) -> Array:
    """Return f, the share of bytes that a cache does not hold, shape (operators,)."""
    return np.maximum(0.0, 1 - hardware.cache_bytes / np.maximum(n_bytes, 1.0))


def costs_of(
    profiles: Mapping[int, Profile], hardware: Hardware, terms: Terms = TERMS, *, dispatch_s: float = 0.0
) -> Costs:
    """Return the coefficients that fit profiles on a machine, by batch size; operators are those of the largest.

    `dispatch_s` is what the executor takes for each (s), which is none of theirs. Raises ValueError where there is no
    profile.
    """
    if not profiles:
        raise ValueError("expected a profile at one batch size at least")
    sizes = sorted(profiles)
    operators = profiles[sizes[-1]].operators
    index = {operator.name: i for i, operator in enumerate(operators)}
    shape = (len(sizes), len(operators))
    one_s, n_bytes = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, size in enumerate(sizes):
        scale = own_scale(profiles[size], 1, dispatch_s)
        for operator in profiles[size].operators:
            if (column := index.get(operator.name)) is not None:
                one_s[row, column] = operator.times_s[1] * scale / operator.runs
                n_bytes[row, column] = operator.n_bytes / operator.runs
    b = np.array(sizes, dtype=float)
    fixed_bytes, bytes_per_item = lines(b, n_bytes)
    moved = np.nan_to_num(n_bytes)
    memory_s = np.stack([moving_s(each, missed(each, hardware), 1.0, hardware) for each in moved])
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = np.fmin.reduce(np.where(memory_s > 0, one_s / memory_s, np.nan), axis=0, initial=1.0)
    fixed_s, per_item_s = lines(b, np.maximum(0.0, one_s - seen * memory_s), scale=one_s)
    costs = Costs(
        fixed_s=fixed_s,
        per_item_s=per_item_s,
        fixed_bytes=fixed_bytes,
        bytes_per_item=bytes_per_item,
        seen=seen,
        serial=np.zeros(len(operators)),
        library=np.array([operator.op.startswith(_LIBRARY) for operator in operators], dtype=bool),
        runs=np.array([operator.runs for operator in operators], dtype=float),
        fork_s=0.0,
        is_divided=any(
            each.threads > 1 and _have_cores(each.threads, hardware)
            for profile in profiles.values()
            for each in profile.traced
        ),
        terms=terms,
    )
    types = _numbers([plain(operator.op) for operator in operators])
    return _with_threads(costs, types, _residuals(costs, profiles, hardware, dispatch_s))


def own_scale(profile: Profile, threads: int, dispatch_s: float) -> float:
    """Return what the times of operators with so many threads are to be multiplied by; 0 where there are none.

    They were measured in steps with statistics, of which a part is their cost. Multiplied, all operators and what the
    executor takes for them, one after the other, are the step that was timed in turns with one thread, as far as the
    shares of a step between operators allow.
    """
    traced = next((each for each in profile.traced if each.threads == threads), None)
    if traced is None:
        return 0.0
    between = traced.bounded(dispatch_s * profile.n_runs / traced.step_s)
    return traced.step_s * (1 - between) / traced.busy_s


def lines(x: Array, y: Array, *, scale: Array | None = None) -> tuple[Array, Array]:
    """Return (intercepts, slopes), not negative, of a line through each column of y, shapes (c,).

    `x` has shape (r,), `y` (r, c), NaN where a value is missing. Errors count relative to the root of the `scale`,
    shape (r, c), of what was measured, else of the values. A single value is taken to be the slope's alone.
    """
    intercepts, slopes = np.zeros(y.shape[1]), np.zeros(y.shape[1])
    for column, values in enumerate(y.T):
        sizes = values if scale is None else scale[:, column]
        known = ~np.isnan(values)
        xs, ys = x[known], values[known]
        if not len(ys):
            continue
        if len(ys) == 1:
            slopes[column] = ys[0] / xs[0]
            continue
        weight = 1 / np.maximum(sizes[known], _SHORT_S)
        mean_x, mean_y = np.average(xs, weights=weight), np.average(ys, weights=weight)
        spread = float(np.sum(weight * (xs - mean_x) ** 2))
        slope = float(np.sum(weight * (xs - mean_x) * (ys - mean_y))) / spread
        intercept = mean_y - slope * mean_x
        if slope < 0:
            slope, intercept = 0.0, mean_y
        elif intercept < 0:
            slope, intercept = float(np.sum(weight * xs * ys) / np.sum(weight * xs * xs)), 0.0
        intercepts[column], slopes[column] = intercept, slope
    return intercepts, slopes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Residuals:
    """What threads were seen to cost beyond perfect division, each of shape (times,).

    Operator, its threads, its time (s), that with one thread (s), what is left of it (s), what that would be at σ = 1
    (s), and at r = 1 s.
    """

    operator: NDArray[np.intp]
    threads: Array
    time_s: Array
    one_s: Array
    left_s: Array
    undivided_s: Array
    hops: Array

    @property
    def gain(self) -> Array:
        """Return how many times as fast an operator was as with one thread: 1 at least, its threads at most."""
        return np.asarray(np.clip(self.one_s / np.maximum(self.time_s, _SHORT_S), 1.0, self.threads))

    @property
    def weight(self) -> Array:
        """Return by what errors are multiplied before they are squared.

        Among the times of one operator they count relative to these: those with many threads tell most of σ. Between
        operators noise grows with a time, if not in proportion: large ones decide, and small ones are heard.
        """
        return np.asarray(np.sqrt(self.gain / np.maximum(self.time_s, _SHORT_S)))


def _have_cores(n: int, hardware: Hardware) -> bool:
    """Return whether so many threads have a core each, and the time to use it."""
    return hardware.capacity(n, 0.0) >= n and (hardware.quota or n) >= n


def _residuals(costs: Costs, profiles: Mapping[int, Profile], hardware: Hardware, dispatch_s: float) -> _Residuals:
    """Return what the times with several threads leave to be explained."""
    largest = profiles[max(profiles)]
    index = {operator.name: i for i, operator in enumerate(largest.operators)}
    operators: list[int] = []
    rows: list[tuple[float, ...]] = []
    for size, each in profiles.items():
        rest_s = costs.runs * costs.rest_s(size)
        one_s = costs.time_s(1, size, hardware).time_s
        own_one = own_scale(each, 1, dispatch_s)
        for n in sorted({n for operator in each.operators for n in operator.times_s if n > 1}):
            # What second threads of cores and a quota do is not the operator's: it is simulated.
            if not _have_cores(n, hardware):
                continue
            threads = costs.threads(n, size, hardware)
            scale = own_scale(each, n, dispatch_s)
            divided_s = costs.time_s(n, size, hardware).time_s
            for operator in each.operators:
                i = index.get(operator.name)
                time_s = operator.times_s.get(n, 0.0) * scale
                if i is None or min(time_s, operator.times_s[1], one_s[i]) <= 0 or threads[i] <= 1:
                    continue
                operators.append(i)
                # Beside what one thread took at this very batch size: times are no lines of it.
                off = operator.times_s[1] * own_one / float(one_s[i])
                undivided_s = off * float(rest_s[i] * (still_serial(threads[i], costs.terms.eta) - 1 / threads[i]))
                n_hops = float(costs.runs[i] * hops(threads[i]))
                left_s = time_s - off * float(divided_s[i])
                rows.append((float(threads[i]), time_s, off * float(one_s[i]), left_s, undivided_s, n_hops))
    columns = np.array(rows).reshape(-1, 6).T
    return _Residuals(
        operator=np.array(operators, dtype=np.intp),
        threads=columns[0],
        time_s=columns[1],
        one_s=columns[2],
        left_s=columns[3],
        undivided_s=columns[4],
        hops=columns[5],
    )


def _with_threads(costs: Costs, types: NDArray[np.intp], residuals: _Residuals) -> Costs:
    """Return costs with r and σ_i: least squares for r and the σ of each type, then each σ_i beside its type's."""
    n_types, n = int(types.max(initial=-1)) + 1, len(types)
    if not len(residuals.operator):
        return replace(costs, serial=np.full(n, _PRIOR_SHARE), fork_s=costs.terms.fork_s)
    of_type = types[residuals.operator]
    a = np.zeros((len(of_type) + n_types, n_types + 1))
    a[np.arange(len(of_type)), of_type] = residuals.undivided_s
    a[: len(of_type), -1] = residuals.hops
    y = np.concatenate([residuals.left_s, np.full(n_types, _PRIOR_SHARE * _PRIOR_S)])
    a[np.arange(len(of_type), len(y)), np.arange(n_types)] = _PRIOR_S  # the prior, as if a time had been measured
    weight = np.concatenate([residuals.weight, np.full(n_types, 1 / np.sqrt(_PRIOR_S))])
    coefficients, _ = nnls(a * weight[:, None], y * weight)
    expected, fork_s = np.clip(coefficients[:-1], 0.0, 1.0)[types], float(coefficients[-1])
    left_s = residuals.left_s - fork_s * residuals.hops
    # Each time of an operator counts as in the fit above; with two threads once, if they halved it.
    counts = residuals.gain / 2
    undivided = np.bincount(residuals.operator, counts * left_s, n)
    divisible = np.bincount(residuals.operator, counts * residuals.undivided_s, n)
    serial = np.clip((undivided + _CALM_S * expected) / (divisible + _CALM_S), 0.0, 1.0)
    return replace(costs, serial=serial, fork_s=fork_s)


def still_serial(threads: Array | float, eta: Array | float) -> Array:
    """Return ψ(n), what is left with n threads of the part that two do not divide."""
    return np.asarray((1 - eta) + eta * (1 + np.log2(threads)) / threads)


def hops(threads: Array | float) -> Array:
    """Return h(n), how many hops from thread to thread an operator with n threads takes in a row.

    Between one and two threads, which a share of a pool may be, it is in proportion.
    """
    n = np.maximum(1.0, threads)
    return np.asarray((2 + np.log2(n)) * np.minimum(1.0, n - 1))


def _numbers(words: Sequence[str]) -> NDArray[np.intp]:
    """Return a number for each word, the same for equal ones."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(word, len(known)) for word in words], dtype=np.intp)
