"""Made throughput surfaces of machines with 4 to 128 cores, whose optimum is known: what searchers are compared on.

Each surface is a pure function of the setting: no simulated events, and nothing that the sampler assumes (no Gaussian
process, no smoothness on its coordinates). The lattices are those of the shipped space `cpu` on made machines, from
some hundred settings (stock build) to some hundred thousand (OpenMP build). An observation has a noise of 1.2 % (log
scale), which the trial reports as its standard error.

Notation
    C, L, S, D   physical cores, logical CPUs, sockets and NUMA nodes of the machine
    p, t, n, b   inter_op, intra_op, omp_num_threads (Eigen build: none), batch_size
    w, q         branches that the graph can run at once, and the share of its work that lies on branches
    k            min(p, w): operators that run at once on the branches

    cores(x)     min(x, C) + y · (min(x, L) - C)⁺, over 1 + o · log2(x / L) where x > L: what x busy threads get done;
                 y is the yield of a second thread on a core, o the price of switching
    team(x, c)   1 / (f_b + (1 - f_b) / min(x, c) + s · log2 x): Amdahl's law for x threads on c cores, with a barrier
                 whose price grows with the depth of its tree; f_b = f / (1 + b / β): larger batches split better
    far(x)       1 + ν where x threads need more cores than a socket has and there are several sockets, else 1
    graph(T1, Tk)  (1 - q) · T1 + q / k · Tk: one operator at a time, and the branches k at a time

Eigen pool (stock build): all operators share t threads; k of them have t / k each.
    T1 = far(t) / team(t, cores(t)),   Tk = far(t) / team(max(1, t / k), cores(max(t, k)) / k)
    time = graph(T1, Tk) · (1 + e · log2(p / w)⁺)                         pools without work spin and steal

OpenMP build: the share h of the work runs on OpenMP teams of n threads, the rest on the Eigen pool as above.
    unbound      T = far · (1 + g) / team(n, cores(x) / running): migration costs g; x is `running` · n threads. Several
                 teams that each fit into a socket pay half of ν only
    bound        every team is bound to the same places, from the first on: k teams share the cores of one,
                 T = far / team(n, places(n) / running), and 1 + z of it where several run
    places(n)    compact: two threads a core, n / 2 cores at 1 + y;  compact_cores: cores(n);  scatter: cores(n), always
                 far, with the memory of all sockets;  one node: cores of C / D
    wake(τ, n)   u · 2^(-τ / 5 ms) · log2(n) / (1 + b / β): a team that sleeps has to be woken for each operator
    spin(τ)      v · (1 - 2^(-τ / 20 ms)) · (x + t) / C - 1)⁺: one that spins takes CPUs from the others
    time = (h · graph(T1, Tk) · (1 + wake + spin) + (1 - h) · Eigen) · (1 + e · log2(p / w)⁺)

Memory (roofline, smooth): (time⁴ + (m / sockets used)⁴)^¼, m the seconds that one socket's bandwidth needs.
Batch: · (1 + b₀ / b) · (1 + c · (log2(b / b₁)⁺)²): overhead of a step shared by its items; what falls out of the caches
    (c = 0: the curve saturates).

The parameters are drawn with fixed seeds. Each machine stands in with both builds and two workloads; of these the kind
"narrow" has few branches (one basin: one pool), "wide" many (two basins in OpenMP builds: a bound team in one pool,
and unbound teams in several). The sampler's constants were chosen on `TUNED_ON`, and on OpenMP surfaces of the same
machines from other seeds; `HELD_BACK` are other machines and other draws, to check them on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from tests.frameworks import read_space, resolve
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.machine.host import Machine
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.estimate import Array
from tuner.workload.workload import load

NOISE_SD = 0.012  # of an observation, log scale
STOCK, OPENMP = "threadpool", "openmp"
NARROW, WIDE = "narrow", "wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A made machine: how many cores, sockets, NUMA nodes, and threads per core."""

    cores: int
    sockets: int = 1
    nodes: int = 1
    threads: int = 2

    def machine(self) -> Machine:
        """Return it as the program sees machines."""
        n_cpus, share = self.cores * self.threads, self.cores // self.nodes
        lists = [
            ",".join(
                f"{first + i * share}-{first + (i + 1) * share - 1}"
                for first in range(0, n_cpus, self.cores)
            )
            for i in range(self.nodes)
        ]  # fmt: skip
        return Machine(
            id=f"made-{self.cores}",
            cpu_model="Made CPU",
            architecture="x86_64",
            online_cpus=n_cpus,
            logical_cpus=n_cpus,
            physical_cores=self.cores,
            threads_per_core=self.threads,
            sockets=self.sockets,
            numa_nodes={str(i): cpus for i, cpus in enumerate(lists)},
            affinity=f"0-{n_cpus - 1}",
            cpu_quota=None,
            memory_bytes=64 << 30,
            memory_limit_bytes=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The symbols of the equations, in words; times are relative to one core's for one item."""

    width: float
    branch_share: float
    serial: float
    serial_batch: float
    barrier: float
    smt_yield: float
    switching: float
    far: float
    idle_pools: float
    memory: float
    openmp_share: float
    migration: float
    sharing: float
    wake: float
    spin: float
    step: float
    cache_batch: float
    cache: float


@dataclass(frozen=True)
class Surface:
    """A throughput surface over a lattice; `rates` are those of all its points, `best` the largest of them."""

    name: str
    host: Host
    build: str
    batch_size: int
    parameters: Parameters

    @property
    def space(self) -> Space:
        """Return the shipped space `cpu` on its machine."""
        return _space(self.host, self.build, self.batch_size)

    @cached_property
    def rates(self) -> Array:
        """Return the rate of each point of the space, shape (points,)."""
        points = self.space.points
        values = list(zip(*([value for _, value in point.items] for point in points), strict=True))
        return self._rates({name: np.array(column) for (name, _), column in zip(points[0].items, values, strict=True)})

    @cached_property
    def best(self) -> float:
        """Return the rate of the optimum, of the baselines that lie off the lattice too."""
        return max(float(self.rates.max()), *(self.rate(s) for s in self.space.baselines.values()))

    def rate(self, setting: Setting) -> float:
        """Return the true rate of a setting."""
        return float(self._rates({name: np.array([value]) for name, value in setting.items})[0])

    def _rates(self, knobs: Mapping[str, Array]) -> Array:
        """Return the rates of settings whose knobs are columns, shape (settings,)."""
        of, host = self.parameters, self.host
        p, t, b = (knobs[name].astype(float) for name in ("inter_op", "intra_op", "batch_size"))
        k = np.minimum(p, of.width)
        sockets = np.minimum(host.sockets, np.ceil(np.maximum(t, k) * host.sockets / host.cores))
        eigen = self._graph(
            k,
            self._far(t) / self._team(t, self._cores(t), b),
            self._far(t) / self._team(np.maximum(t / k, 1.0), self._cores(np.maximum(t, k)) / k, b),
        )
        time = eigen
        if self.build == OPENMP:
            n, words = knobs["omp_num_threads"].astype(float), knobs["kmp_affinity"]
            blocktime = knobs["kmp_blocktime"].astype(float)
            teams = [self._teams(running, n, b, words) for running in (np.ones_like(k), k)]
            busy = self._busy(k, n, words)
            wake = of.wake * 2.0 ** (-blocktime / 5.0) * np.log2(n) / (1 + b / of.serial_batch)
            spin = of.spin * (1 - 2.0 ** (-blocktime / 20.0)) * np.maximum((busy + t) / host.cores - 1, 0.0)
            time = of.openmp_share * self._graph(k, *teams) * (1 + wake + spin) + (1 - of.openmp_share) * eigen
            spread = np.where(words == "granularity=fine,scatter", host.sockets, 1.0)
            sockets = np.maximum(spread, np.minimum(host.sockets, np.ceil(busy * host.sockets / host.cores)))
        time = time * (1 + of.idle_pools * np.maximum(np.log2(p / of.width), 0.0))
        time = (time**4 + (of.memory / sockets) ** 4) ** 0.25
        grown = np.maximum(np.log2(b / of.cache_batch), 0.0)
        return np.asarray(1.0 / (time * (1 + of.step / b) * (1 + of.cache * grown**2)))

    def _cores(self, x: Array) -> Array:
        """Return the cores' worth of x busy threads."""
        of, n_cores, n_cpus = self.parameters, self.host.cores, self.host.cores * self.host.threads
        done = np.minimum(x, n_cores) + of.smt_yield * np.maximum(np.minimum(x, n_cpus) - n_cores, 0.0)
        return np.asarray(done / (1 + of.switching * np.maximum(np.log2(x / n_cpus), 0.0)))

    def _team(self, x: Array, cores: Array, b: Array) -> Array:
        """Return the speed-up of x threads on so many cores."""
        of = self.parameters
        serial = of.serial / (1 + b / of.serial_batch)
        parallel = (1 - serial) / np.maximum(np.minimum(x, cores), 1e-3)
        return np.asarray(1.0 / (serial + parallel + of.barrier * np.log2(np.maximum(x, 1.0))))

    def _far(self, x: Array) -> Array:
        """Return what x threads pay for spanning sockets, those of a second thread on a core among them."""
        far = (self.host.sockets > 1) & (x > self.host.cores / self.host.sockets)
        return np.where(far, 1 + self.parameters.far, 1.0)

    def _graph(self, k: Array, one: Array, several: Array) -> Array:
        """Return the time of a graph whose branches run k at a time."""
        q = self.parameters.branch_share
        return np.asarray((1 - q) * one + q / k * several)

    def _busy(self, running: Array, n: Array, words: Array) -> Array:
        """Return the CPUs that the teams keep busy: bound ones lie on top of each other."""
        return np.where(words == "none", running * n, n)

    def _teams(self, running: Array, n: Array, b: Array, words: Array) -> Array:
        """Return the time of an operator where so many teams of n threads run."""
        of, host = self.parameters, self.host
        fits = n <= host.cores / host.sockets
        lone = self._far(running * n)
        unbound_far = np.where((running > 1) & fits, 1 + (lone - 1) / 2, lone)
        unbound = unbound_far * (1 + of.migration) / self._team(n, self._cores(running * n) / running, b)
        one_node = host.cores / host.nodes
        places = {
            "granularity=fine,compact": (
                np.minimum(np.maximum(n / host.threads, 1.0), host.cores) * (1 + of.smt_yield * (host.threads > 1)),
                self._far(n / host.threads),
            ),
            "granularity=fine,compact,1,0": (self._cores(n), self._far(n)),
            "granularity=fine,scatter": (self._cores(n), np.where((n > 1) & (host.sockets > 1), 1 + of.far, 1.0)),
        }
        time = unbound
        for word in np.unique(words):
            if word != "none":
                node = (np.minimum(n, one_node * (1 + of.smt_yield * (n > one_node))), np.ones_like(n))
                cores, far = places.get(str(word), node)
                bound = far / self._team(n, cores / running, b) * np.where(running > 1, 1 + of.sharing, 1.0)
                time = np.where(words == word, bound, time)
        return np.asarray(time)


def _draw(seed: int, host: Host, kind: str) -> Parameters:
    """Return the parameters of a workload on a machine: uniform, or log-uniform where a range spans an order."""
    rng = np.random.default_rng([16, seed])

    def uniform(low: float, high: float) -> float:
        return float(low + (high - low) * rng.random())

    def spread(low: float, high: float) -> float:
        return float(low * (high / low) ** rng.random())

    wide = kind == WIDE
    return Parameters(
        width=uniform(3.0, 9.0) if wide else uniform(1.0, 2.2),
        branch_share=uniform(0.6, 0.95) if wide else uniform(0.05, 0.4),
        serial=spread(0.05, 0.3) if wide else spread(0.01, 0.1),
        serial_batch=spread(8.0, 128.0),
        barrier=spread(0.0005, 0.05),
        smt_yield=uniform(-0.05, 0.25),
        switching=uniform(0.05, 0.3),
        far=uniform(0.03, 0.3),
        idle_pools=uniform(0.005, 0.04),
        memory=spread(0.2, 1.2) / host.cores * host.sockets,
        openmp_share=uniform(0.6, 0.95),
        migration=uniform(0.03, 0.2),
        sharing=uniform(0.5, 1.5),
        wake=spread(0.01, 0.1),
        spin=spread(0.02, 0.3),
        step=spread(0.2, 8.0),
        cache_batch=spread(8.0, 128.0),
        cache=0.0 if rng.random() < 0.3 else spread(0.01, 0.08),
    )


def _runtime(build: str, host: Host) -> Build:
    return Build(
        id=build,
        python="3.11.7",
        tensorflow="2.21.0",
        onednn="3.7.3",
        onednn_runtime=build,
        onednn_enabled=True,
        onednn_why="made",
        onednn_threads=host.cores,
        isa="AVX-512",
        openmp_libraries=[],
        xla=True,
        cuda=None,
        refused=None,
        cpus=host.cores * host.threads,
        observations=[],
    )


@cache
def _space(host: Host, build: str, batch_size: int) -> Space:
    machine = host.machine()
    workload = replace(load("resnet50"), batch_size=batch_size)
    file = read_space("cpu", machine, default_batch=batch_size)
    return resolve(file, machine=machine, build=_runtime(build, host), workload=workload)


_TUNED_HOSTS = (
    Host(cores=4),
    Host(cores=16, sockets=2, nodes=2),
    Host(cores=56, sockets=2, nodes=2),
    Host(cores=64, nodes=4),
)
_HELD_HOSTS = (
    Host(cores=6, threads=1),
    Host(cores=8),
    Host(cores=24, sockets=2, nodes=2, threads=1),
    Host(cores=32),
    Host(cores=48, sockets=2, nodes=2),
    Host(cores=128, sockets=2, nodes=8),
)


def _surfaces(hosts: Sequence[Host], first_seed: int) -> tuple[Surface, ...]:
    """Return a narrow and a wide workload for each machine and build."""
    surfaces = []
    for host in hosts:
        for build in (STOCK, OPENMP):
            for kind in (NARROW, WIDE):
                seed = first_seed + len(surfaces)
                batch_size = (8, 16, 32)[seed % 3]
                name = f"{host.cores} cores, {'OpenMP' if build == OPENMP else 'stock'}, {kind}"
                parameters = _draw(seed, host, kind)
                surfaces.append(
                    Surface(name=name, host=host, build=build, batch_size=batch_size, parameters=parameters)
                )
    return tuple(surfaces)


TUNED_ON = _surfaces(_TUNED_HOSTS, 0)
HELD_BACK = _surfaces(_HELD_HOSTS, 100)
