"""The lattice of a space as arrays: settings as points of the unit cube, and which settings are neighbours.

Notation
    rows (m, k)   settings by the index of each knob's value
    X (m, d)      the same settings encoded, each coordinate in [0, 1]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.stats.estimate import Array

Indices = NDArray[np.intp]
_ZERO_COUNTS_AS = 0.5  # what a 0 counts as


class Encoding:
    """Settings as points of the unit cube.

    A numeric knob is one coordinate, log2(value) scaled to [0, 1], where 0 counts as a half: the step from 1 to 2
    threads matters as much as that from 8 to 16. A word is one coordinate per choice, 1/√2 or 0, so that two words are
    1 apart. The `additive` knobs may have effects that do not depend on the others.
    """

    def __init__(self, choices: Mapping[str, Sequence[Value]], *, additive: Sequence[str] = ()) -> None:
        self.additive = tuple(additive)
        self._ranks = {name: {value: i for i, value in enumerate(values)} for name, values in choices.items()}
        self._tables = {name: _table(values) for name, values in choices.items()}

    @property
    def knobs(self) -> list[str]:
        """Return the knobs in the order of the columns of rows."""
        return list(self._ranks)

    def coordinates(self, *knobs: str) -> Indices:
        """Return which columns of X these knobs are."""
        widths = [table.shape[1] for table in self._tables.values()]
        owners = np.repeat(np.array(self.knobs), widths)
        return np.flatnonzero(np.isin(owners, knobs))

    def rows(self, settings: Iterable[Setting]) -> Indices:
        """Return settings by the index of each value, shape (m, k)."""
        ranks = self._ranks
        indices = [[ranks[name][values[name]] for name in ranks] for values in map(Setting.to_dict, settings)]
        return np.array(indices, dtype=np.intp).reshape(len(indices), len(ranks))

    def encode(self, settings: Iterable[Setting]) -> Array:
        """Return the settings' coordinates, shape (m, d)."""
        return self.encode_rows(self.rows(settings))

    def encode_rows(self, rows: Indices) -> Array:
        """Return the coordinates of settings that are given by the indices of their values, shape (m, d)."""
        return np.hstack([table[rows[:, i]] for i, table in enumerate(self._tables.values())])


class Lattice:
    """The points of a space, by number."""

    def __init__(self, points: Sequence[Setting], encoding: Encoding, choices: Mapping[str, Sequence[Value]]) -> None:
        self.points = points
        self._encoding = encoding
        self._sizes = tuple(len(values) for values in choices.values())
        self._rows = encoding.rows(points)
        codes = self._codes(self._rows)
        self._order = np.argsort(codes)
        self._sorted = codes[self._order]

    def encode(self, numbers: Indices) -> Array:
        """Return the coordinates of the points with these numbers, shape (m, d)."""
        return self._encoding.encode_rows(self._rows[numbers])

    def numbers(self, settings: Iterable[Setting]) -> Indices:
        """Return the numbers of those settings that are points of the lattice."""
        return self._known(self._encoding.rows(settings))

    def neighbours(self, settings: Sequence[Setting]) -> Indices:
        """Return the numbers of the points that differ from one of the settings in one knob, by however much."""
        rows = self._encoding.rows(settings)
        candidate_rows = [rows]
        for knob, size in enumerate(self._sizes):
            line = np.repeat(rows, size, axis=0)
            line[:, knob] = np.tile(np.arange(size), len(rows))
            candidate_rows.append(line)
        return np.unique(self._known(np.vstack(candidate_rows)))

    def _codes(self, rows: Indices) -> Indices:
        return np.asarray(np.ravel_multi_index(tuple(rows.T), self._sizes), dtype=np.intp)

    def _known(self, rows: Indices) -> Indices:
        codes = self._codes(rows)
        at = np.minimum(np.searchsorted(self._sorted, codes), len(self._sorted) - 1)
        return np.asarray(self._order[at[self._sorted[at] == codes]], dtype=np.intp)


def thinned(n: int, most: int = 4000) -> Indices:
    """Return the numbers of `most` of n points, always the same ones: those that a model of the machine is asked about.

    Each takes a simulation of some milliseconds. All of them where there are no more.
    """
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _table(values: Sequence[Value]) -> Array:
    """Return the coordinates of each value of a knob, shape (values, coordinates)."""
    if all(isinstance(value, int) for value in values):
        x = np.log2(np.maximum([float(value) for value in values], _ZERO_COUNTS_AS))
        return np.asarray((x - x.min()) / max(x.max() - x.min(), 1e-12))[:, None]
    return np.eye(len(values)) / math.sqrt(2) if len(values) > 1 else np.zeros((1, 0))
