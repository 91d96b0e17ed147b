"""A deployment: what a setting comes to outside of tftune, whoever starts the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tuner.devices import registry as devices
from tuner.devices.gpu import KIND as GPU
from tuner.errors import unknown_name

PRELOAD = "LD_PRELOAD"
_EITHERS = ("cpus", "processes", "cpu_sets", "streams", "shared_batch", "name", "share", "members", "gpu")
_ALWAYS_TOLD = ("env", "arguments", "cpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What applies a setting.

    `env` are the variables of the program's environment, `options` those of the session that it loads its model into,
    `arguments` what its own code has to be given, such as the batch size, `cpus` the list of the CPUs that it is kept
    to, None for all that it may use anyway. `processes` is how many of it run at the same time, `cpu_sets` the CPUs of
    each of them, empty where they are not kept apart, and `streams` how many calls run at once in each. `shared_batch`
    is the number of items that they share out among them, 0 where each has batches of its own. Of an ensemble each
    process has a deployment of its own, in `members`, with the `name` of its model, and where they share a CPU quota
    with its `share` of the cores, else 0. `gpu` is the GPU that the program
    is to see: its number as its maker's tool counts, or the name of a slice; None where it needs none. `device` is what
    the first of such GPUs is asked for by. `inherited` are the names of those variables in `env` that nothing
    recommends: what was measured had them from its environment.
    `measured_cpus` is how many CPUs could be busy at once there, None where that is not known, and `framework` the name
    of the framework that was measured, "" where that is not known.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, int | str] = field(default_factory=dict)
    cpus: str | None = None
    options: Mapping[str, int | str] = field(default_factory=dict)
    processes: int = 1
    cpu_sets: tuple[str, ...] = ()
    shared_batch: int = 0
    name: str = ""
    share: int = 0
    gpu: str | None = None
    device: str = GPU
    inherited: tuple[str, ...] = ()
    measured_cpus: float | None = field(default=None, compare=False)  # it changes nothing of what is set
    framework: str = field(default="", compare=False)
    members: tuple[Deployment, ...] = ()
    streams: int = 1

    def under(self, environment: Mapping[str, str]) -> Deployment:
        """Return it with the variables that the measured processes inherited, beside its own."""
        if self.members:
            return replace(self, members=tuple(each.under(environment) for each in self.members))
        inherited = tuple(name for name in environment if name not in self.env)
        return replace(self, env={**environment, **self.env}, inherited=inherited)

    @property
    def own_env(self) -> dict[str, str]:
        """Return the variables without those that are only inherited."""
        return {name: value for name, value in self.env.items() if name not in self.inherited}

    @property
    def inherited_env(self) -> dict[str, str]:
        """Return the variables that are only inherited."""
        return {name: value for name, value in self.env.items() if name in self.inherited}

    @property
    def gpu_env(self) -> dict[str, str]:
        """Return the variables by which a program sees its GPU and no other; none where it needs none."""
        return {} if self.gpu is None else devices.named(self.device).showing(self.gpu)

    def of(self, number: int) -> Deployment:
        """Return what applies to the process of that number, counted from 0."""
        return self.members[number] if self.members else self

    def member(self, name: str) -> Deployment:
        """Return what applies to the process of that model; raises BadInputError where there is none."""
        if name not in (each.name for each in self.members):
            raise unknown_name("model of the study", name, [each.name for each in self.members])
        return next(each for each in self.members if each.name == name)

    def cpus_of(self, number: int) -> str | None:
        """Return the CPUs of a process by its number, counted from 0; None for all that it may use anyway."""
        if self.members:
            return self.members[number].cpus
        return self.cpu_sets[number] if self.cpu_sets else self.cpus

    def __bool__(self) -> bool:
        """Return whether there is anything to apply, beside what was inherited."""
        return bool(
            self.own_env or self.options or self.arguments or self.cpus or self.processes > 1 or self.streams > 1
        )

    def __or__(self, other: Deployment) -> Deployment:
        """Return both together, the other's values first of all; libraries that either preloads are all preloaded."""
        env = {**self.env, **other.env}
        if PRELOAD in self.env and PRELOAD in other.env:
            env[PRELOAD] = f"{self.env[PRELOAD]}:{other.env[PRELOAD]}"
        usual = Deployment()
        whose = {name: self if getattr(other, name) == getattr(usual, name) else other for name in _EITHERS}
        return Deployment(
            env=env,
            options={**self.options, **other.options},
            arguments={**self.arguments, **other.arguments},
            device=self.device if other.gpu is None else other.device,
            **{name: getattr(of, name) for name, of in whose.items()},
        )

    def holds(self, part: Deployment) -> bool:
        """Return whether anything of `part` is set here, to whatever value."""
        named = part.env.keys() & self.env.keys() or part.options.keys() & self.options.keys()
        together = part.processes > 1 and self.processes > 1
        return bool(named) or together or (part.cpus is not None and self.cpus is not None)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data; of most things, only what is not as by default."""
        data: dict[str, object] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _ALWAYS_TOLD or value not in (each.default, {}):
                data[each.name] = dict(value) if isinstance(value, Mapping) else value
                data[each.name] = list(value) if isinstance(value, tuple) else data[each.name]
        return data | ({"members": [each.to_dict() for each in self.members]} if self.members else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Deployment:
        """Return the deployment of plain data.

        Studies before schema 2 had variables of ours for the batch size and the CPUs among the others.
        """
        env = dict(data["env"])
        batch_size, cpus = env.pop("TFTUNE_BATCH_SIZE", None), env.pop("TFTUNE_CPUS", None)
        known: dict[str, Any] = {
            "arguments": {} if batch_size is None else {"batch_size": int(batch_size)},
            "cpus": cpus,
        }
        known |= {each.name: data[each.name] for each in fields(cls) if each.name in data} | {"env": env}
        for name in ("cpu_sets", "inherited"):
            known[name] = tuple(known.get(name, ()))
        return cls(**known | {"members": tuple(cls.from_dict(each) for each in data.get("members", ()))})
