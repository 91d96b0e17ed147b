"""The search space on one machine and one build: a finite lattice of settings, and the baselines beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.machine.coresets import are_shared, core_sets
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.space.baseline import Baseline
from tuner.space.carrier import Mask, Preload
from tuner.space.catalogue import Catalogue
from tuner.space.deployment import Deployment
from tuner.space.ensemble import knob_name, of_member, share_sets, with_shares
from tuner.space.expression import Expression
from tuner.space.groups import (
    INSTANCES,
    batch_shares,
    batch_total,
    default_batch_of,
    groups,
    with_shared_batch,
)
from tuner.space.setting import Setting
from tuner.space.spacefile import SpaceFile, default_of
from tuner.space.values import Value
from tuner.workload.workload import Workload

_MAX_LATTICE = 1_000_000

Canonicalize = Callable[[str, Value], Value]
"""Gives one word for all values of a knob that are the same on a machine: from the knob's name and a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A resolved search space, of the knobs and baselines of a framework's catalogue.

    `points` are the settings that may be suggested; `baselines` the named recommendations, which need not lie on the
    lattice; `inactive` the knobs that stay out and `unavailable_values` the values of others that do, each with its
    reason; `pins` what the user holds; `libraries` the paths of what can be preloaded, by the value that asks for it.
    Where it does not `passes_batch_size`, the workload has a batch size of its own and is told none.
    """

    name: str
    catalogue: Catalogue
    domains: dict[str, tuple[Value, ...]]
    inactive: dict[str, str]
    points: tuple[Setting, ...]
    baselines: dict[str, Setting]
    pins: dict[str, Value] = field(default_factory=dict)
    unavailable_values: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    passes_batch_size: bool = True
    file_digest: str = ""
    """Of the file's text; the same on every machine."""
    groups: Mapping[Setting, tuple[str, ...]] = field(default_factory=dict)
    """Settings of several processes that answer how the machine is used best, with the baselines that recommend each.

    They are no points: a search of the space is for the best setting of one process.
    """
    total_batch: int | None = None
    """The items of a step that several processes share among them; None where each has steps of its own."""
    members: tuple[str, ...] = ()
    """The names of an ensemble's members; none for a single model."""
    cores: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """The CPUs of each physical core and of each NUMA node, as `tuner.machine.coresets` takes them."""
    kind_by_core: Mapping[str, int] = field(default_factory=dict)
    """The kinds of these cores where they are not alike."""
    quota: float | None = None
    """How many CPUs may be busy at once, of all of these; None without a limit."""

    def satisfies_pins(self, setting: Setting) -> bool:
        """Return whether a setting keeps to the pins, and so may be chosen; baselines need not."""
        return all(setting[name] == value for name, value in self.pins.items())

    @property
    def default(self) -> str:
        """Return the name of the baseline that is the framework's default."""
        return self.catalogue.default

    @property
    def reference(self) -> Setting:
        """Return the framework's default at the default batch size."""
        return self.baselines[self.default]

    @property
    def fingerprint(self) -> str:
        """Return a name that changes with anything the space holds."""
        points = [str(point) for point in self.points]
        return digest([points, [str(s) for s in self.baselines.values()], list(self.choices().items())])

    def contains(self, setting: Setting) -> bool:
        """Return whether a setting can be tried: its values are known to the space, and keep to the pins."""
        choices, values = self.choices(), setting.to_dict()
        return (
            values.keys() == choices.keys()
            and all(value in choices[name] for name, value in values.items())
            and (self.total_batch is None or batch_total(setting) == self.total_batch)
            and self.satisfies_pins(setting)
        )

    def aliases(self) -> dict[str, list[str]]:
        """Return, for each baseline, the other names whose setting is the same here."""
        return {
            name: [other for other in self.baselines if other != name and self.baselines[other] == setting]
            for name, setting in self.baselines.items()
        }

    def new_points(self, settings: Iterable[Setting]) -> list[Setting]:
        """Return those of some settings that are points and no baselines, each once."""
        points, baselines = set(self.points), set(self.baselines.values())
        return [each for each in dict.fromkeys(settings) if each in points and each not in baselines]

    def at_batch_sizes(self, sizes: Iterable[int]) -> list[Setting]:
        """Return the default at each of some batch sizes that is a point and no baseline."""
        return self.new_points(self.reference.with_values(batch_size=size) for size in sizes)

    def deployment(self, setting: Setting) -> Deployment:
        """Return what applies `setting`; nothing but the batch size for the framework's own default.

        The default is measured as users run it, with nothing set, and not as a copy of it.
        """
        is_default = setting.without("batch_size") == self.reference.without("batch_size")
        if self.members:
            return self._ensemble(setting, is_default=is_default)
        deployment = self._apply(setting, is_default=is_default)
        if deployment.processes == 1:
            return deployment
        mask = None if deployment.cpus is None else parse_list(deployment.cpus)
        cores = [core for core in self.cores if mask is None or parse_list(core) <= mask]
        cpu_sets = core_sets(cores, self.nodes, deployment.processes, self.kind_by_core, quota=self.quota)
        return replace(deployment, cpu_sets=cpu_sets, shared_batch=self.total_batch or 0)

    def member_setting(self, setting: Setting, number: int) -> Setting:
        """Return the setting of one member of an ensemble, without the shares."""
        shares = [knob_name(member) for member in self.members]
        return of_member(setting, self.catalogue, shares[number], shares, whole=int(self.reference[shares[0]]))

    def _ensemble(self, setting: Setting, *, is_default: bool) -> Deployment:
        """Return what applies a setting of an ensemble: a process for each member, on its share of the cores.

        Under a quota that is less than all CPUs the share is one of the quota, and the process has no CPUs of its own.
        """
        shares = [int(setting[knob_name(member)]) for member in self.members]
        is_quota = are_shared(self.cores, self.quota)
        cores = () if is_quota else self.cores
        cpu_sets = share_sets(cores, shares, whole=int(self.reference[knob_name(self.members[0])]))
        members = [
            replace(
                self._apply(self.member_setting(setting, number), is_default=is_default),
                name=name,
                cpus=cpus,
                share=share if is_quota else 0,
            )
            for number, (name, cpus, share) in enumerate(zip(self.members, cpu_sets, shares, strict=True))
        ]
        return Deployment(processes=len(members), members=tuple(members), arguments=members[0].arguments)

    def _apply(self, setting: Setting, *, is_default: bool) -> Deployment:
        """Return what applies the values of a setting, besides the CPUs of several processes."""
        values = setting.to_dict()
        applied = {
            name: value
            for name, value in values.items()
            if (
                self.passes_batch_size
                if name == "batch_size"
                else not is_default and not self._needs_nothing(name, values)
            )
        }
        return self.catalogue.deploy(applied, self.libraries)

    def _needs_nothing(self, name: str, values: Mapping[str, Value]) -> bool:
        """Return whether a knob is left alone: where it does nothing beside the others, and some at their defaults.

        These are what is read early, and the mask that there is anyway.
        """
        each = self.catalogue.knobs[name]
        is_default = (each.read_at_start or isinstance(each.carrier, Mask)) and values[name] == self.reference[name]
        return is_default or not each.has_effect(values)

    def additive(self) -> list[str]:
        """Return the knobs that may have a curve which all settings share."""
        return self.catalogue.additive(self.choices())

    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Return every value that a knob takes on the lattice, in a baseline or in a group, in order.

        A group's threads are its share of the cores, which the lattice need not have: 3 of 6 under a quota.
        """
        return {
            name: tuple(
                sorted(
                    {*domain, *(setting[name] for setting in (*self.baselines.values(), *self.groups))},
                    key=lambda value: (isinstance(value, str), value),
                )
            )
            for name, domain in self.domains.items()
        }


def resolve(
    file: SpaceFile,
    *,
    catalogue: Catalogue,
    machine: Machine,
    build: Any,
    workload: Workload,
    pins: Mapping[str, str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    fixed_batch: bool = False,
    inherited: Mapping[str, str] = MappingProxyType({}),
    libraries: Mapping[str, str] = MappingProxyType({}),
    spelling: Canonicalize = lambda _, value: value,
    unavailable: Mapping[str, str] = MappingProxyType({}),
    passes_batch_size: bool = True,
    with_groups: bool = False,
    splits_batch: bool = False,
    device: str = "cpu",
    maker: str = "",
) -> Space:
    """Resolve a space file; raises BadInputError for a pin that cannot be or a lattice that is empty.

    `pins` hold a knob at one value; `batch_sizes` replace the file's; `fixed_batch` keeps the batch size at the
    default (of `batch_sizes` if given, else of the workload), as a search for latency must. Core knobs that the file
    leaves out, and that act on the build, stay at the framework's default. `inherited` are the variables that every
    trial has anyway, `libraries` what can be preloaded here; `spelling` gives one word for all values of a knob that
    are the same on this machine; `unavailable` knobs stay out unless pinned, with their reasons. `with_groups` adds the
    settings of several processes, where the space itself does not ask for their number. With `splits_batch` the
    processes of a setting share the default's batch among them. `device` is the kind of what computes, and
    `maker` who makes it, if that is known.
    """
    pins = dict(pins or {})
    knobs = catalogue.knobs
    domains: dict[str, tuple[Value, ...]] = {}
    off = {name: reason for name, reason in unavailable.items() if name not in pins}
    off |= _inactive(catalogue, file, pins, build, inherited, device, maker)
    for name, each in knobs.items():
        if name not in off and (each.in_every_setting or name in file.domains or name in pins):
            domains[name] = file.domains.get(name, (each.default(machine, build, workload.batch_size),))
    for name, text in pins.items():
        domains[name] = (catalogue.knob(name).parse(text, machine),)
    dropped = _drop_what_is_missing(catalogue, domains, pins, libraries)
    domains = {name: tuple(dict.fromkeys(spelling(name, v) for v in domain)) for name, domain in domains.items()}
    if batch_sizes:
        if "batch_size" in pins:
            raise BadInputError("both --batch-size and --set batch_size are given", "keep one of them")
        domains["batch_size"] = tuple(sorted({knobs["batch_size"].check(b, machine) for b in batch_sizes}))
    default_batch = default_batch_of(domains, workload, is_user_choice=bool(batch_sizes) or "batch_size" in pins)
    if fixed_batch:
        if batch_sizes and len(set(batch_sizes)) > 1:
            raise BadInputError("--objective latency with several batch sizes", "give one batch size")
        domains["batch_size"] = (default_batch,)
    total_batch = default_batch if splits_batch and INSTANCES in domains else None
    if total_batch is not None:
        domains["batch_size"] = batch_shares(total_batch, domains[INSTANCES])
    baselines = {
        each.name: _baseline(each, catalogue, domains, machine, build, default_batch, spelling)
        for each in catalogue.baselines
        if each.needs <= domains.keys() and (each.name == catalogue.default or device in each.devices)
    }
    baselines = with_shared_batch(baselines, total_batch)
    pinned = {name: domains[name][0] for name in pins if total_batch is None or name != "batch_size"}
    several = groups(catalogue, domains, baselines[catalogue.default], machine, pinned) if with_groups else {}
    points = _lattice(file, domains, baselines[catalogue.default], names=[name for name in knobs if name in domains])
    points = tuple(each for each in points if total_batch is None or batch_total(each) == total_batch)
    members = tuple(member.name for member in workload.members)
    if members:
        default = baselines[catalogue.default]
        # Of a machine whose cores are not known none can be given to a process.
        n_cores = min(machine.usable_cores, len(machine.cores))
        points, domains = with_shares(points, domains, members, catalogue, default, pinned, n_cores=n_cores)
    return Space(
        name=file.name,
        catalogue=catalogue,
        file_digest=file.digest,
        domains=_tried(points, domains),
        inactive=off,
        unavailable_values=dropped,
        libraries={value: path for value, path in libraries.items() if any(value in d for d in domains.values())},
        points=points,
        total_batch=total_batch,
        members=members,
        passes_batch_size=passes_batch_size,
        pins=pinned,
        baselines=baselines,
        groups=several,
        cores=tuple(machine.cores),
        nodes=tuple(machine.numa_nodes.values()),
        kind_by_core=machine.kind_by_core,
        quota=machine.cpu_quota,
    )


def _baseline(
    baseline: Baseline,
    catalogue: Catalogue,
    domains: Mapping[str, tuple[Value, ...]],
    machine: Machine,
    build: Any,
    batch_size: int,
    spelling: Canonicalize,
) -> Setting:
    knobs = catalogue.knobs
    values = {name: knobs[name].default(machine, build, batch_size) for name in knobs if name in domains}
    for name, value in baseline.rule(machine).items():
        # A library that is not installed cannot be recommended.
        if name in domains and (not isinstance(knobs[name].carrier, Preload) or value in domains[name]):
            values[name] = spelling(name, value)
    return Setting.of(values)


def _inactive(
    catalogue: Catalogue,
    file: SpaceFile,
    pins: Mapping[str, str],
    build: Any,
    inherited: Mapping[str, str],
    device: str,
    maker: str,
) -> dict[str, str]:
    """Return the knobs that stay out, with the reason; raises BadInputError where one of them is pinned."""
    named = file.domains.keys() | pins.keys()
    off = {}
    for name, each in catalogue.knobs.items():
        is_asked = each.in_every_setting or name in named
        reason = each.why_inactive(build, inherited, device, maker) if is_asked else None
        rivals = [rival for rival in each.overrides if rival in named]
        if reason is None and rivals:
            reason = f"{rivals[0]} sets the same thing, and this knob would override it"
        if reason is not None:
            off[name] = reason
    for name in pins:
        if name in off:
            raise BadInputError(f"{name}={pins[name]} would have no effect: {off[name]}", "remove it")
    return off


def _drop_what_is_missing(
    catalogue: Catalogue,
    domains: dict[str, tuple[Value, ...]],
    pins: Mapping[str, str],
    libraries: Mapping[str, str],
) -> dict[str, str]:
    """Take values out of `domains` whose library is not installed; return the reason for each knob concerned."""
    dropped = {}
    preloads = {name: carrier for name in domains if isinstance(carrier := catalogue.knobs[name].carrier, Preload)}
    for name, carrier in preloads.items():
        missing = [value for value in domains[name] if carrier.is_missing(value, libraries)]
        if missing:
            reason = f"{', '.join(map(str, missing))}: this library is not installed"
            if name in pins:
                raise BadInputError(f"{name}={pins[name]}: this library is not installed", "install it first")
            domains[name] = tuple(value for value in domains[name] if value not in missing) or (carrier.usual,)
            dropped[name] = reason
    return dropped


def _tried(points: Sequence[Setting], domains: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """Return the domains without values that no constraint leaves a point for."""
    used_values = {name: {point[name] for point in points} for name in domains}
    return {name: tuple(value for value in domain if value in used_values[name]) for name, domain in domains.items()}


def _lattice(
    file: SpaceFile, domains: Mapping[str, tuple[Value, ...]], default: Setting, *, names: Sequence[str]
) -> tuple[Setting, ...]:
    """Return the settings that keep to the constraints, which may speak of what a knob is by default."""
    size = 1
    for domain in domains.values():
        size *= len(domain)
    if size > _MAX_LATTICE:
        raise BadInputError(
            f"the search space has {size:,} points", f"expected at most {_MAX_LATTICE:,}; remove some values"
        )
    symbol_values = {**file.symbols, **{default_of(name): value for name, value in default.items}}
    # A constraint on a knob that cannot act here does not bind.
    binding = [c for c in file.constraints if c.names <= symbol_values.keys() | domains.keys()]
    # Each constraint is asked once for each combination of the few knobs that it speaks of, not once for each point.
    allowed_values = [_satisfying_values(constraint, names, domains, symbol_values) for constraint in binding]
    columns = [[(name, value) for value in domains[name]] for name in names]
    at = [[names.index(name) for name in names if name in constraint.names] for constraint in binding]
    checks = list(zip(at, allowed_values, strict=True))
    points = [
        Setting(items)
        for items in itertools.product(*columns)
        if all(tuple(items[i][1] for i in where) in allowed for where, allowed in checks)
    ]
    if not points:
        left = list(itertools.product(*columns))
        for constraint, (where, allowed) in zip(binding, checks, strict=True):
            left = [items for items in left if tuple(items[i][1] for i in where) in allowed]
            if not left:
                raise BadInputError(
                    f"no setting of '{file.name}' satisfies its constraint '{constraint.text}' on this machine",
                    "relax it, or remove a --set",
                )
    return tuple(points)


def _satisfying_values(
    constraint: Expression,
    names: Sequence[str],
    domains: Mapping[str, tuple[Value, ...]],
    symbol_values: Mapping[str, Value],
) -> set[tuple[Value, ...]]:
    """Return the values, of those of the knobs `names` that a constraint speaks of, that keep to it."""
    spoken = [name for name in names if name in constraint.names]
    combinations = itertools.product(*(domains[name] for name in spoken))
    return {c for c in combinations if constraint.value({**symbol_values, **dict(zip(spoken, c, strict=True))})}
