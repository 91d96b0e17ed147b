"""Recipes: settings relative to the machine and the graph, which is what a rule can carry to the next workload.

Notation
    P   physical cores inside the affinity mask and the quota
    S   sockets
    w   pools: the graph's average width, rounded down, at most P (Wang et al., TACO 2021, is one recipe of these; its
        formula is recalled, not verified)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.rules.situation import EIGEN, OPENMP, Scale
from tuner.space.knob import Value

DEFAULT = "default"
COMPACT = "compact"
ONEDNN = "onednn"
Known = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A value of a knob in words, and what it is at a scale, given the values of the knobs before it."""

    name: str
    words: str
    of: Callable[[Scale, Known], Value]


def _number(value: int, words: str = "") -> Term:
    return Term(name=str(value), words=words or str(value), of=lambda *_: value)


_CORES = Term(name="cores", words="all usable cores", of=lambda s, _: s.cores)
_SHARE = Term(
    name="cores/inter_op",
    words="the usable cores shared among the pools",
    of=lambda s, known: max(1, s.cores // int(known.get("inter_op", 1))),
)
_TERMS: dict[str, tuple[Term, ...]] = {
    "inter_op": (
        _number(1),
        Term(name="sockets", words="one a socket", of=lambda s, _: s.sockets),
        Term(name="width", words="the graph's average width", of=lambda s, _: s.pools),
        _CORES,
    ),
    "intra_op": (_CORES, _SHARE, _number(1)),
    "omp_num_threads": (_CORES, _SHARE, _number(1)),
    # Which spelling binds compactly is a matter of the machine; the situation's owner replaces the word.
    "kmp_affinity": (Term(name=COMPACT, words="compact", of=lambda *_: COMPACT),),
    "kmp_blocktime": (_number(0, "0 ms"), _number(1, "1 ms"), _number(30, "30 ms"), _number(200, "200 ms")),
    ONEDNN: (_number(1, "on (changes rounding)"),),
}
TERMS = {knob: {term.name: term for term in terms} for knob, terms in _TERMS.items()}
# The pool that a knob acts on, where it is not either.
_POOL = {"omp_num_threads": OPENMP, "kmp_affinity": OPENMP, "kmp_blocktime": OPENMP, ONEDNN: EIGEN}
_LABELS = {
    "omp_num_threads": "OMP_NUM_THREADS",
    "kmp_affinity": "KMP_AFFINITY",
    "kmp_blocktime": "KMP_BLOCKTIME",
    ONEDNN: "oneDNN",
}
BATCH = "batch_size"
FACTORS = (0.125, 0.25, 0.5, 2.0, 4.0, 8.0)


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
        found: dict[str, Value] = {}
        for knob, name in self.items:
            if knob == BATCH:
                found[knob] = max(1, round(scale.batch_size * float(name)))
            elif _acts(knob, scale):
                found[knob] = TERMS[knob][name].of(scale, found)
        return found

    def words(self, pool: str | None = None) -> str:
        """Return the recipe as a person would say it; of a build with that pool, if it is said."""
        shown = [
            f"{_LABELS.get(knob, knob)} {_factor(name) if knob == BATCH else TERMS[knob][name].words}"
            for knob, name in self.items
            if pool is None or _POOL.get(knob, pool) == pool
        ]
        return ", ".join(shown) or "keep TensorFlow's defaults"


def _acts(knob: str, scale: Scale) -> bool:
    """Return whether a knob does anything there: oneDNN can be turned on where a stock wheel leaves it off."""
    if knob == ONEDNN:
        return scale.onednn_is_open
    return _POOL.get(knob, scale.pool) == scale.pool


def _factor(name: str) -> str:
    factor = float(name)
    return f"{factor:g} times the workload's own" if factor > 1 else f"1/{1 / factor:g} of the workload's own"


def thread_recipes() -> list[Recipe]:
    """Return every recipe for threads, OpenMP and oneDNN, keeping the defaults first, simpler ones before others.

    OpenMP's knobs and the switch of oneDNN act on different builds, and have rules of their own; only a guide that
    sets both is one recipe.
    """
    openmp = _combined([knob for knob in TERMS if knob != ONEDNN])
    stock = [recipe | Recipe.of({ONEDNN: "1"}) for recipe in _combined(["inter_op", "intra_op"])]
    return sorted([*openmp, *stock, _INTEL], key=lambda recipe: recipe.n_knobs)


def _combined(knobs: Sequence[str]) -> list[Recipe]:
    """Return the recipes of each choice of terms, or none, for these knobs."""
    choices = [(DEFAULT, *TERMS[knob]) for knob in knobs]
    return [
        Recipe.of({knob: name for knob, name in zip(knobs, names, strict=True) if name != DEFAULT})
        for names in itertools.product(*choices)
    ]


_INTEL = Recipe.of(
    {
        "inter_op": "sockets",
        "intra_op": "cores/inter_op",
        "omp_num_threads": "cores",
        "kmp_affinity": COMPACT,
        "kmp_blocktime": "1",
        ONEDNN: "1",
    }
)


def batch_recipes() -> list[Recipe]:
    """Return every recipe for the batch size, keeping the workload's own first."""
    return [Recipe(), *(Recipe.of({BATCH: f"{factor:g}"}) for factor in FACTORS)]
