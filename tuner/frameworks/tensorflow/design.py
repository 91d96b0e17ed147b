"""A small design: a setting of each regime, tried before the model has its say.

A model that has seen one regime only believes in it: teams bound to cores in one pool, or unbound ones in several. The
design shows it both: 1 pool bound, and 1, 2 and 4 pools unbound, with as many threads as fill the cores. Each stands at
another batch size, as what a batch gains is much the same for all of them. What the baselines show is left out, and so
is what would be the same setting on a small machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.frameworks.tensorflow.baselines import DEFAULT, INTEL
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value

_REGIMES = ((1, True), (2, False), (4, False), (1, False))
"""Pools, and whether threads are bound: several bound teams lie on the same cores, which the baselines show."""
_BATCHES = (4, 2, 8)  # times the default's
_BLOCKTIMES = (1, 30)  # ms
_GUIDE = "tf-guide"
_ON_GPU = "gpu_thread_mode"  # a knob that acts on a GPU only
_SCAN_STEP = 4  # of batch sizes
_BINDING = ("kmp_affinity", "omp_proc_bind")  # knobs that bind threads


def design(space: Space) -> list[Setting]:
    """Return the settings of the design, points of the space, none of them in the regime of a baseline."""
    domains, reference = space.domains, space.reference
    if _ON_GPU in domains:
        return _batch_scan(space)
    if not {"inter_op", "intra_op", "batch_size"} <= domains.keys():
        return []
    points = set(space.points)
    cores = int(space.baselines.get(_GUIDE, reference)["intra_op"])
    covered_regimes = {_regime(setting) for setting in space.baselines.values()}
    design_settings: list[Setting] = []
    for pools, bound in _REGIMES:
        if pools > cores:
            continue
        wanted_values: dict[str, Value] = {"inter_op": pools, "intra_op": cores, **_binding(space, bound=bound)}
        if "omp_num_threads" in domains:
            wanted_values["omp_num_threads"] = max(1, cores // pools)
        if "kmp_blocktime" in domains:
            wanted_values["kmp_blocktime"] = _BLOCKTIMES[len(design_settings) % len(_BLOCKTIMES)]
        wanted_values["batch_size"] = reference.batch_size * _BATCHES[len(design_settings) % len(_BATCHES)]
        setting = _nearest(space, reference.to_dict() | wanted_values)
        # A pin may leave no such regime.
        if setting["inter_op"] == pools and setting in points and _regime(setting) not in covered_regimes:
            covered_regimes.add(_regime(setting))
            design_settings.append(setting)
    return design_settings


def _batch_scan(space: Space) -> list[Setting]:
    """Return the default at batch sizes four times as large each, to the last of the space.

    On a GPU the batch decides most, and where memory ends is not known: the first that does not fit tells.
    """
    points, reference = set(space.points), space.reference
    sizes = [size for size in sorted(map(int, space.domains["batch_size"])) if size > reference.batch_size]
    wanted_sizes, least = [], reference.batch_size * _SCAN_STEP
    for size in sizes:
        if size >= least:
            wanted_sizes.append(size)
            least = size * _SCAN_STEP
    settings = [reference.with_values(batch_size=size) for size in wanted_sizes]
    return [setting for setting in settings if setting in points]


def _binding(space: Space, *, bound: bool) -> dict[str, Value]:
    """Return how threads are bound by Intel's recommendation, or are not by default; nothing where no knob binds."""
    setting = space.baselines.get(INTEL, space.reference) if bound else space.baselines[DEFAULT]
    return {name: setting[name] for name in _BINDING if name in space.domains}


def _regime(setting: Setting) -> tuple[Value | None, ...]:
    """Return what makes a regime: pools, the threads of a team, and whether they are bound."""
    values = setting.to_dict()
    team = values.get("omp_num_threads", values["intra_op"])
    return (values["inter_op"], team, *(values.get(name) for name in _BINDING))


def _nearest(space: Space, values: Mapping[str, Value]) -> Setting:
    """Return the setting with each number replaced by the nearest one of its domain."""

    def of(name: str, value: Value) -> Value:
        if isinstance(value, str):
            return value
        return min((int(v) for v in space.domains[name]), key=lambda v: (abs(v - value), v))

    return Setting.of({name: of(name, value) for name, value in values.items() if name in space.domains})
