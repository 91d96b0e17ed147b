"""Recipes: settings relative to the machine and the graph, which is what a rule can carry to the next workload.

A recipe names a term for each knob that it sets (`tuner.space.term`), or a factor of the batch size.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.frameworks import registry
from tuner.space.groups import INSTANCES
from tuner.space.term import COMPACT, Scale
from tuner.space.values import Value

FRAMEWORK = registry.find(registry.DEFAULT)
"""What all rules are about."""
DEFAULT = "default"
ONEDNN = "onednn"
_VOCABULARIES = {name: knob.vocabulary for name, knob in FRAMEWORK.knobs.items() if knob.vocabulary is not None}
TERMS = {name: {term.name: term for term in each.terms} for name, each in _VOCABULARIES.items()}
OF_A_DEVICE = frozenset(name for name, each in _VOCABULARIES.items() if each.device is not None)
POOLS = tuple(name for name, knob in FRAMEWORK.knobs.items() if knob.counts_threads)
BINDING = next(name for name, terms in TERMS.items() if COMPACT in terms)
"""The knobs of one kind of device, those that are the threads of a pool, and the one that binds threads."""
_EVERYWHERE = [
    name for name, each in _VOCABULARIES.items() if each.pool is None and each.device is None and name != INSTANCES
]
BATCH = "batch_size"
THREADS = "threads"
PROCESSES = "processes"
LATENCY = "latency"
GROUPS = (THREADS, BATCH, PROCESSES, LATENCY)
"""What rules are about: all knobs of threads together, the batch size on top of them, how many processes there are, and
the processes with which a call takes about as long as under the defaults, mostly with smaller batches.

The last two set the threads, too: of several processes each has an equal share of the cores, and as many threads.
"""
FACTORS = (0.125, 0.25, 0.5, 2.0, 4.0, 8.0)


def speaks_of(knob: str, *, on_gpu: bool) -> bool:
    """Return whether rules on one process speak of a knob: some are spoken of on a GPU only."""
    return knob == BATCH or (knob in TERMS and knob != INSTANCES and (on_gpu or knob not in OF_A_DEVICE))


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a rule sets: a term for each knob that it does not leave at TensorFlow's default, or a factor of the batch.

    Hashable; the items are in the order of `TERMS`.
    """

    items: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Recipe:
        """Return the recipe of these terms, by knob."""
        return cls(tuple((knob, values[knob]) for knob in (*TERMS, BATCH) if knob in values))

    def to_dict(self) -> dict[str, str]:
        """Return the recipe as plain data."""
        return dict(self.items)

    def __or__(self, other: Recipe) -> Recipe:
        """Return the recipe with the terms of another on top."""
        return Recipe.of(self.to_dict() | other.to_dict())

    @property
    def n_knobs(self) -> int:
        """Return how many knobs it sets."""
        return len(self.items)

    def values(self, scale: Scale) -> dict[str, Value]:
        """Return the values of the knobs that it sets at a scale; what cannot act there is left out."""
        resolved: dict[str, Value] = {}
        for knob, name in self.items:
            if knob == BATCH:
                if resolved.get(INSTANCES) != 1:  # on so few cores one process is what is there
                    resolved[knob] = max(1, round(scale.batch_size * float(name)))
            elif _VOCABULARIES[knob].has_effect(scale):
                resolved[knob] = TERMS[knob][name].value_at(scale, resolved)
        return resolved

    def words(self, pool: str | None = None) -> str:
        """Return the recipe as a person would say it; of a build with that pool, if it is said."""
        phrases = [_words(knob, name) for knob, name in self.items if knob == BATCH or acts_on(knob, pool)]
        return ", ".join(phrases) or "keep TensorFlow's defaults"


def acts_on(knob: str, pool: str | None) -> bool:
    """Return whether a knob acts on builds with that pool, or with any."""
    return pool is None or _VOCABULARIES[knob].pool in (None, pool)


def _words(knob: str, name: str) -> str:
    if knob == BATCH:
        return f"{knob} {factor_words(name)}"
    return f"{_VOCABULARIES[knob].label} {TERMS[knob][name].words}"


def factor_words(name: str) -> str:
    """Return a factor of the batch size as a person would say it."""
    factor = float(name)
    return f"{factor:g} times the workload's own" if factor > 1 else f"1/{1 / factor:g} of the workload's own"


def thread_recipes(*, on_gpu: bool = False) -> list[Recipe]:
    """Return every recipe for threads, OpenMP and oneDNN, keeping the defaults first, simpler ones before others.

    OpenMP's knobs and the switch of oneDNN act on different builds, and have rules of their own; only a guide that
    sets both is one recipe. On a GPU they are about the host's threads, those that hand work to the GPU, and XLA.
    """
    if on_gpu:
        on_card = [knob for knob in TERMS if knob in OF_A_DEVICE]
        return sorted(_combined([*_EVERYWHERE, *on_card]), key=lambda recipe: recipe.n_knobs)
    openmp = _combined([knob for knob in TERMS if knob != ONEDNN and speaks_of(knob, on_gpu=False)])
    stock = [recipe | Recipe.of({ONEDNN: "1"}) for recipe in _combined(_EVERYWHERE)]
    guides = [Recipe.of(each.terms) for each in FRAMEWORK.baselines if each.terms]
    return sorted([*openmp, *stock, *guides], key=lambda recipe: recipe.n_knobs)


def _combined(knobs: Sequence[str]) -> list[Recipe]:
    """Return the recipes of each choice of terms, or none, for these knobs."""
    choices = [(DEFAULT, *TERMS[knob]) for knob in knobs]
    return [
        Recipe.of({knob: name for knob, name in zip(knobs, names, strict=True) if name != DEFAULT})
        for names in itertools.product(*choices)
    ]


def batch_recipes() -> list[Recipe]:
    """Return every recipe for the batch size, keeping the workload's own first."""
    return [Recipe(), *(Recipe.of({BATCH: f"{factor:g}"}) for factor in FACTORS)]


def process_recipes() -> list[Recipe]:
    """Return every recipe for the number of processes, keeping one first."""
    return [Recipe(), *(Recipe.of({INSTANCES: name}) for name in TERMS[INSTANCES])]


def latency_recipes() -> list[Recipe]:
    """Return every recipe for the number of processes with their own or smaller batches, keeping one first."""
    several = process_recipes()
    smaller = [Recipe.of({BATCH: f"{factor:g}"}) for factor in FACTORS if factor < 1]
    return [*several, *(one | batch for one in several[1:] for batch in smaller)]
