"""The search space on one machine and one runtime: a finite lattice of settings, and the baselines beside it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.machine.host import Machine
from tuner.runtime.probe import Runtime
from tuner.space.baseline import BASELINES, DEFAULT
from tuner.space.knob import KNOBS, Value, knob
from tuner.space.setting import Setting
from tuner.space.spacefile import SpaceFile, symbols
from tuner.workload.workload import Workload

_MAX_LATTICE = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A resolved search space.

    `points` are the settings that may be suggested; `baselines` the named recommendations, which need not lie
    on the lattice; `off` the knobs that stay out, each with its reason; `pins` what the user holds.
    """

    name: str
    domains: dict[str, tuple[Value, ...]]
    off: dict[str, str]
    points: tuple[Setting, ...]
    baselines: dict[str, Setting]
    pins: dict[str, Value] = field(default_factory=dict)

    def allows(self, setting: Setting) -> bool:
        """Return whether a setting keeps to the pins, and so may be chosen; baselines need not."""
        return all(setting[name] == value for name, value in self.pins.items())

    @property
    def reference(self) -> Setting:
        """Return TensorFlow's default at the default batch size."""
        return self.baselines[DEFAULT]

    @property
    def fingerprint(self) -> str:
        """Return a name that changes with anything the space holds."""
        points = [str(point) for point in self.points]
        return digest([points, [str(s) for s in self.baselines.values()], list(self.choices().items())])

    def aliases(self) -> dict[str, list[str]]:
        """Return, for each baseline, the other names whose setting is the same here."""
        return {
            name: [other for other in self.baselines if other != name and self.baselines[other] == setting]
            for name, setting in self.baselines.items()
        }

    def env(self, setting: Setting) -> dict[str, str]:
        """Return the variables that apply `setting`; none but the batch size's for TensorFlow's own default.

        The default is measured as users run it, with nothing set, and not as a copy of it.
        """
        if setting.without("batch_size") == self.reference.without("batch_size"):
            return Setting.of({"batch_size": setting.batch_size}).env()
        return setting.env()

    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Return every value that a knob takes on the lattice or in a baseline, in order."""
        return {
            name: tuple(
                sorted(
                    set(domain) | {setting[name] for setting in self.baselines.values()},
                    key=lambda value: (isinstance(value, str), value),
                )
            )
            for name, domain in self.domains.items()
        }


def resolve(
    file: SpaceFile,
    *,
    machine: Machine,
    runtime: Runtime,
    workload: Workload,
    pins: Mapping[str, str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    fixed_batch: bool = False,
) -> Space:
    """Resolve a space file; raises BadInputError for a pin that cannot be or a lattice that is empty.

    `pins` hold a knob at one value; `batch_sizes` replace the file's; `fixed_batch` keeps the batch size at the
    default (of `batch_sizes` if given, else of the workload), as a search for latency must. Knobs that the file
    leaves out, and that act on the runtime, stay at TensorFlow's default.
    """
    pins = dict(pins or {})
    domains: dict[str, tuple[Value, ...]] = {}
    off: dict[str, str] = {}
    for name, each in KNOBS.items():
        reason = each.reason_off(runtime)
        if reason:
            off[name] = reason
            if name in pins:
                raise BadInputError(f"{name}={pins[name]} would change nothing: {reason}", "leave it out")
            continue
        domains[name] = file.domains.get(name, (each.default(machine, runtime, workload.batch_size),))
    for name, text in pins.items():
        domains[knob(name).name] = (knob(name).parse(text, machine),)
    if batch_sizes:
        if "batch_size" in pins:
            raise BadInputError("both --batch-size and --set batch_size are given", "keep one of them")
        domains["batch_size"] = tuple(sorted({KNOBS["batch_size"].check(b, machine) for b in batch_sizes}))
    default_batch = _default_batch(domains, workload, chosen=bool(batch_sizes) or "batch_size" in pins)
    if fixed_batch:
        if batch_sizes and len(set(batch_sizes)) > 1:
            raise BadInputError(
                "several batch sizes for --objective latency", "give one: latency is compared at one batch size"
            )
        domains["batch_size"] = (default_batch,)
    return Space(
        name=file.name,
        domains=domains,
        off=off,
        points=_lattice(file, domains, machine),
        pins={name: domains[name][0] for name in pins},
        baselines={
            each.name: _baseline(each.rule(machine), domains, machine, runtime, default_batch) for each in BASELINES
        },
    )


def _default_batch(domains: Mapping[str, tuple[Value, ...]], workload: Workload, *, chosen: bool) -> int:
    """Return the batch size of the baselines: the workload's, or the nearest of those that the user chose."""
    if not chosen:
        return workload.batch_size
    return min((int(b) for b in domains["batch_size"]), key=lambda b: (abs(b - workload.batch_size), b))


def _baseline(
    rule: Mapping[str, Value],
    domains: Mapping[str, tuple[Value, ...]],
    machine: Machine,
    runtime: Runtime,
    batch_size: int,
) -> Setting:
    defaults = {name: KNOBS[name].default(machine, runtime, batch_size) for name in domains}
    return Setting.of(defaults | {name: value for name, value in rule.items() if name in domains})


def _lattice(file: SpaceFile, domains: Mapping[str, tuple[Value, ...]], machine: Machine) -> tuple[Setting, ...]:
    size = 1
    for domain in domains.values():
        size *= len(domain)
    if size > _MAX_LATTICE:
        raise BadInputError(
            f"the search space has {size:,} points", f"expected at most {_MAX_LATTICE:,}: take values out"
        )
    known = symbols(machine)
    # A constraint on a knob that cannot act here does not bind.
    binding = [c for c in file.constraints if c.names <= known.keys() | domains.keys()]
    names = [name for name in KNOBS if name in domains]
    points = []
    for values in itertools.product(*(domains[name] for name in names)):
        point = dict(zip(names, values, strict=True))
        if all(c.value(known | point) for c in binding):
            points.append(Setting(tuple(point.items())))
    if not points:
        raise BadInputError(
            f"no setting of '{file.name}' satisfies its constraints on this machine", "loosen a constraint or a --set"
        )
    return tuple(points)
