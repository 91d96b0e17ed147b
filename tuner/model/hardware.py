"""What a simulation needs to know of a machine: its cores, how much they share, and how fast they are.

Notation
    C, S     physical cores that may be used, and the sockets that they lie in
    h        hardware threads of a core, on average: some may have two, and others one
    q        quota: how many CPUs' worth of time may be used, None if there is none
    W(n)     bytes/s that n threads move from memory, W(1) of one, W_max of all
    L        bytes of the last-level caches
    y        yield of a second hardware thread: n > C threads are worth C + y (n − C) cores, up to n = 2 C; what a third
             and a fourth thread of a core add is not known, and taken to be nothing
    ℓ        busy loss: with k of C cores at work everything takes 1 + ℓ (k − 1) / (C − 1) times as long
    ω        how many times as long it takes to wake a thread as on the machine that was profiled

Each constant is one of `Terms`, with its source or the measurement that it was fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.machine.host import Machine

_LAST_LEVEL = ("L4", "L3", "L2")
_DEFAULT_CACHE = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The constants of the effects, each with its source, or as the guess that it is."""

    smt_yield: float = 0.25
    """What a second thread of a core adds to the first: about what floating-point code shows (Bulpin and Pratt,
    Multiprogramming Performance of the Pentium 4 with Hyper-Threading, WDDD 2004: 1.2 times on average)."""
    grain_s: float = 33e-6
    """So much work (s) Eigen gives a further thread at least: 100,000 cycles (kPerThreadCycles of its
    TensorCostModel.h), at 3 GHz."""
    eta: float = 0.25
    """η (`tuner.model.costs`), a compromise. On 16 cores (results/predictions/cores) operators of BERT-tiny that
    take 0.6, 0.7 and 0.8 of the time with two threads take 0.17, 0.26 and 0.42 with 16: that is an η of 0.5 and more.
    Steps of PyTorch on 16 and 18 cores (`tests.benchmarks.strangers`) have 0 to 0.5."""
    fork_s: float = 10e-6
    """r where it was not measured (s): about what profiles show on two virtual AMD cores (4 to 14 µs) and on 16
    virtual Intel cores (8.5 µs). On two of the latter a thread wakes in 7.5 to 8.5 µs (`tuner.machine.corecosts`)."""
    wake_s: float = 35e-6
    """Until a slot of the executor whose thread sleeps begins with what is handed to it: as TensorFlow's trace shows it
    on the virtual machine of results/predictions (34 to 42 µs)."""
    hand_s: float = 8e-6
    """What it takes a slot to hand a task to one whose thread sleeps: as `notify_one` of a condition variable takes on
    that machine where the thread that waits has a CPU of its own (7 to 10 µs in the median)."""
    asleep_s: float = 20e-6
    """What it costs more (s) where the threads of a team had gone to sleep: a guess."""
    eigen_switch: float = 0.01
    """What a CPU loses for each further thread of a pool, beyond that they share it: fitted to results/predictions,
    two threads on one CPU beside one. That is next to nothing: a pool gives work to whoever is free."""
    openmp_switch: float = 0.07
    """The same of teams: from MobileNetV2 on one CPU and on two, and LeNet-5 on one (`tests.benchmarks.crowded`). With
    two times as many threads as CPUs they reach 0.92 to 0.97 of the rate of as many as CPUs, with four times 0.81 to 1,
    with eight times 0.71 to 0.93; here that is 0.93, 0.83 and 0.67."""
    throttle: float = 0.135
    """What steps lose where twice as many threads run as the quota has time for: fitted to results/predictions."""
    remote: float = 1.6
    """So much slower is the memory of another socket: in the range of published figures."""
    cache_gain: float = 4.0
    """A cache moves so many times the bytes of memory: a guess."""
    busy_loss: float = 0.18
    busy_cores: int = 16
    """ℓ of a machine with so many cores or more, if it was not measured (`tuner.machine.corecosts`). It is in
    proportion to the others if there are fewer: clocks of a 16-core Xeon fall from 2.6 to 2.2 GHz if all cores run
    SIMD code (Bhardwaj et al., ICML 2025, appendix A). What memory loses is modelled apart."""
    socket_bandwidth: float = 8.0
    """All threads of a socket move so many times the bytes of one, where that was not measured: a guess."""


TERMS = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The cores that a process may use; see the notation above."""

    cores: int
    smt: float
    sockets: int
    quota: float | None
    one_bytes_s: float
    most_bytes_s: float
    cache_bytes: float
    busy_loss: float = 0.0
    waking: float = 1.0

    @property
    def cpus(self) -> int:
        """Return how many threads can run at once."""
        return round(self.cores * self.smt)

    @property
    def cores_per_socket(self) -> int:
        """Return the cores of a socket."""
        return max(1, self.cores // self.sockets)

    def capacity(self, n: float, switch: float, terms: Terms = TERMS) -> float:
        """Return how many cores' worth of work n threads get done; `switch` is the loss where they are too many."""
        worth = min(n, self.cores) + terms.smt_yield * max(0.0, min(n, self.cpus, 2 * self.cores) - self.cores)
        if n > self.cpus:
            worth /= 1 + switch * (n / self.cpus - 1)
        return worth

    def slower(self, n_busy: float) -> float:
        """Return how many times as long everything takes while so many cores are at work, beside one alone."""
        k = min(max(1.0, n_busy), self.cores, self.quota or math.inf)
        return 1 + self.busy_loss * (k - 1) / max(1, self.cores - 1)

    def part(self, n: int) -> Hardware:
        """Return what each of n processes has of the machine that share its cores and its memory."""
        # Where there are more processes than cores, several share one.
        quotas = [self.quota / n] if self.quota is not None else []
        quotas += [self.cores / n] if n > self.cores else []
        return replace(
            self,
            cores=max(1, self.cores // n),
            sockets=max(1, math.ceil(self.sockets / n)),
            quota=min(quotas, default=None),
            most_bytes_s=self.most_bytes_s / n,
            cache_bytes=self.cache_bytes / n,
        )

    def limited(self, cores: int | None, smt: float | None = None) -> Hardware:
        """Return the machine with no more than so many cores of it, beside each other; None for all.

        `smt` is how many hardware threads of each may be used, None for all.
        """
        n_cores = min(self.cores, cores or self.cores)
        n_sockets = min(self.sockets, math.ceil(n_cores / self.cores_per_socket))
        share = n_sockets / self.sockets
        return replace(
            self,
            cores=n_cores,
            smt=min(self.smt, smt or self.smt),
            sockets=n_sockets,
            most_bytes_s=self.most_bytes_s * share,
            cache_bytes=self.cache_bytes * share,
        )


def hardware_of(
    machine: Machine,
    bytes_s: Mapping[int, float],
    *,
    is_here: bool,
    socket_bytes_s: float | None = None,
    waking: float = 1.0,
    busy_loss: float | None = None,
) -> Hardware:
    """Return a machine as simulations see it, its cores as fast as those that were measured.

    `bytes_s` is W(n) as measured, by threads, with one among them. A machine that is not here moves
    `TERMS.socket_bandwidth` times the bytes of one thread on each socket, or `socket_bytes_s` where that is known; then
    a thread moves no more than such a part of them, or than its share where a socket has fewer cores. `busy_loss` is ℓ
    as measured there, None if it was not: then it is `TERMS.busy_loss`.
    """
    sockets = max(1, machine.sockets)
    cores = machine.physical_cores
    one_bytes_s = bytes_s[1]
    most_bytes_s = one_bytes_s * min(cores, TERMS.socket_bandwidth * sockets)
    if socket_bytes_s is not None:
        one_bytes_s = min(one_bytes_s, socket_bytes_s / min(TERMS.socket_bandwidth, max(1.0, cores / sockets)))
        most_bytes_s = min(cores * one_bytes_s, sockets * socket_bytes_s)
    elif is_here:
        # Threads that were measured may not have been enough to fill it.
        is_full = max(bytes_s) >= min(cores, TERMS.socket_bandwidth)
        most_bytes_s = max(bytes_s.values()) if is_full else max(most_bytes_s, *bytes_s.values())
    # Caches are those of the host; the process may have a part of it.
    share = min(1.0, machine.logical_cpus / max(1, machine.online_cpus))
    sizes = {cache.name: (cache.size_bytes or 0) * max(1.0, cache.n_instances * share) for cache in machine.caches}
    cache_bytes = next((sizes[name] for name in _LAST_LEVEL if sizes.get(name)), _DEFAULT_CACHE)
    return Hardware(
        cores=cores,
        smt=max(1.0, machine.logical_cpus / max(1, cores)),
        sockets=sockets,
        quota=machine.cpu_quota,
        one_bytes_s=one_bytes_s,
        most_bytes_s=max(one_bytes_s, most_bytes_s),
        cache_bytes=cache_bytes,
        busy_loss=TERMS.busy_loss * min(1.0, (cores - 1) / (TERMS.busy_cores - 1)) if busy_loss is None else busy_loss,
        waking=waking,
    )
