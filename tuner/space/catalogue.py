"""The catalogue of a framework: the knobs that act on it, and what is recommended for it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tuner.errors import BadInputError, UnknownNameError, unknown_name
from tuner.space.baseline import Baseline
from tuner.space.carrier import Processes
from tuner.space.deployment import Deployment
from tuner.space.experiment import Experiment
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.values import Cpus, Value, Words


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """What a search is over: `knobs` by name, in the order that settings are shown in, and the baselines.

    The first baseline is the default of the framework: it sets nothing. `foreign` is how variables begin that act on
    the same as the knobs do, or slow a step down, and so would falsify a trial. `owner` tells which other framework has
    a knob of a name, None if none has. `threads_on` gives the knobs of a process that has so many cores to itself, none
    where the framework has no such knobs.
    """

    framework: str
    knobs: Mapping[str, Knob]
    baselines: tuple[Baseline, ...]
    foreign: tuple[str, ...] = ()
    owner: Callable[[str], str | None] = lambda _: None
    threads_on: Callable[[int], Mapping[str, Value]] = lambda _: {}

    @property
    def default(self) -> str:
        """Return the name of the default."""
        return self.baselines[0].name

    def must_run(self, names: Collection[str]) -> bool:
        """Return whether a search cannot do without one of these baselines."""
        return any(each.must_run for each in self.baselines if each.name in names)

    def of_command(self) -> Catalogue:
        """Return the catalogue for a command: what a guide sets need not suit it, so that only the default must run."""
        default, *guides = self.baselines
        return replace(self, baselines=(default, *(replace(each, must_run=False) for each in guides)))

    @property
    def experiments(self) -> list[Experiment]:
        """Return the experiments by which a probe sees which knobs reach a build."""
        return [knob.experiment for knob in self.knobs.values() if knob.experiment is not None]

    def knob(self, name: str) -> Knob:
        """Return the knob of that name; raises BadInputError with the nearest names, or with whose knob it is."""
        if name in self.knobs:
            return self.knobs[name]
        meant = [each.name for each in self.knobs.values() if name in (each.name.upper(), each.carrier.name)]
        if meant:
            raise UnknownNameError(f"unknown knob '{name}'", f"did you mean {meant[0]}?")
        owner = self.owner(name)
        if owner is not None:
            raise BadInputError(
                f"{name} is a knob of {owner}, not of {self.framework}", f"expected one of {', '.join(self.knobs)}"
            )
        raise unknown_name("knob", name, self.knobs)

    def assignments(self, text: str) -> list[str]:
        """Return the parts `knob=value` of a text, apart by commas or spaces; BadInputError for one of another form.

        A value may hold commas itself, as affinities do.
        """
        parts: list[str] = []
        for piece in re.split(r"\s*,\s*|\s+", re.sub(r"\s*=\s*", "=", text.strip())):
            name, separator, _ = piece.partition("=")
            # `granularity=fine` inside an affinity looks like a knob, but there is none of that name.
            if name not in self.knobs and parts and self._holds_commas(parts[-1].partition("=")[0]):
                parts[-1] += f",{piece}"
            elif not separator:
                raise BadInputError(
                    f"'{piece}' in '{text}' is not of the form knob=value", "write e.g. inter_op=1,intra_op=2"
                )
            else:
                parts.append(piece)
        return parts

    def _holds_commas(self, name: str) -> bool:
        values = self.knobs[name].values if name in self.knobs else None
        return isinstance(values, Words | Cpus) and values.holds_commas

    def additive(self, names: Collection[str]) -> list[str]:
        """Return which of the knobs of a space have a curve that all its settings share, the last first."""
        return [name for name in reversed(list(self.knobs)) if name in names and self.knobs[name].is_additive(names)]

    def deploy(self, values: Mapping[str, Value], libraries: Mapping[str, str] = MappingProxyType({})) -> Deployment:
        """Return what applies all of these values; see `tuner.space.carrier` for the `libraries`."""
        applied = Deployment()
        for name, value in values.items():
            applied |= self.knobs[name].carrier.deploy(value, libraries)
        return applied

    def by_variable(self, in_words: Collection[str] = frozenset()) -> set[str]:
        """Return the knobs that only a variable takes to a program; those `in_words` of a command arrive by them."""
        return {name for name, knob in self.knobs.items() if knob.variable is not None and name not in in_words}

    def is_early(self, variable: str) -> bool:
        """Return whether a knob's variable is read before the framework starts threads: a process begins with it."""
        return any(each.read_at_start and each.variable == variable for each in self.knobs.values())

    def n_threads(self, setting: Setting) -> int:
        """Return how many threads the pools of all processes of a setting start, and its callers but the first.

        What the framework does not know of has none.
        """
        values = setting.to_dict()
        known = [self.knobs[name] for name in values if name in self.knobs]
        n_processes = math.prod(int(values[knob.name]) for knob in known if isinstance(knob.carrier, Processes))
        return n_processes * sum(knob.n_threads(values) for knob in known)

    def scrub(self, env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return `env` without the knobs' variables, and the names of those that were set.

        A trial's setting is all that may act on it: an OMP_NUM_THREADS left over in the caller's shell would
        falsify every trial alike, and the comparison with the defaults first of all.
        """
        reserved = {
            knob.variable for knob in self.knobs.values() if knob.variable is not None and not knob.read_at_start
        }
        reserved |= {name for name in env if name.startswith(self.foreign)}
        return {k: v for k, v in env.items() if k not in reserved}, sorted(reserved & set(env))
