"""Rounds of new processes, which several tests may have in common: a contender runs once for all that ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.errors import TunerError
from tuner.measure import finals
from tuner.measure.countdown import Countdown
from tuner.measure.finals import Contender, Round
from tuner.measure.planning import FinalsPlan
from tuner.trial.launcher import Launcher

Notify = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Rounds:
    """The rounds that were held, and what holds them.

    Processes are fresh interpreters from `launcher`, or come from the `fork_launchers` in turn where there are any and
    nothing asks for fresh ones. Each of those is asked for when it is needed first, and is up when it is returned, so
    that two rounds do not wait for servers of later ones. `time` is the clock of the run.
    """

    launcher: Launcher
    plan: FinalsPlan
    rng: np.random.Generator
    time: Countdown
    fork_launchers: Sequence[Callable[[], Launcher]] = ()
    notify: Notify = lambda _: None
    held: list[Round] = field(default_factory=list)
    left_at_start_s: float = math.inf
    """The time that was left (s) when these rounds were begun, or went on."""
    n_together: int = 2
    """How many contenders the next round has, as far as is known."""
    _round_s: dict[int, float] = field(default_factory=dict)
    """How long (s) the longest round lasted, by its number of contenders."""

    def hold(self, contenders: Sequence[Contender], *, fresh: bool) -> Round:
        """Hold one round more; `fresh` tells whether forks would not do."""
        forks = None if fresh else self._forks()
        began_s, n = self.time.elapsed_s(), len(contenders)
        self.held.append(self._run(contenders, forks))
        if self.held[-1].one_at_a_time:
            self.plan = replace(self.plan, max_resident=1)
        if len(self.held) > 1 and self.held[-1].fresh != self.held[-2].fresh:
            self._round_s.clear()  # fresh interpreters take longer to start than forked ones
        self._round_s[n] = max(self._round_s.get(n, 0.0), self.time.elapsed_s() - began_s)
        return self.held[-1]

    def expected_s(self, n: int) -> float:
        """Return about how long a round of `n` contenders lasts, by those that were held."""
        return max((seconds * n / k for k, seconds in self._round_s.items()), default=0.0)

    def n_more(self) -> int:
        """Return for how many more rounds like the next one there is time; as many as are planned without a limit."""
        left_s = self.time.left_s()
        if left_s == math.inf:
            return self.plan.max_rounds
        return max(0, int(left_s / max(self.expected_s(self.n_together), 1e-9)))

    def _forks(self) -> Launcher | None:
        """Return what the next round is forked from; None if nothing can be."""
        if not self.fork_launchers:
            return None
        try:
            return self.fork_launchers[(len(self.held) - 1) % len(self.fork_launchers)]()
        except TunerError as error:
            self._go_on_with_fresh(error)
            return None

    def _run(self, contenders: Sequence[Contender], forks: Launcher | None) -> Round:
        if forks is not None:
            try:
                return finals.run_round(contenders, forks, self.plan, self.rng, fresh=False)
            except TunerError as error:
                self._go_on_with_fresh(error)
        return finals.run_round(contenders, self.launcher, self.plan, self.rng)

    def _go_on_with_fresh(self, error: TunerError) -> None:
        """Use no forks any more: a server that is gone is no reason to end what fresh interpreters can do."""
        self.fork_launchers = ()
        self.notify(f"the finals continue with fresh interpreters: {error.message}")


def in_common(of_tests: Sequence[Sequence[Contender]]) -> list[Contender]:
    """Return the contenders of several tests, one for each setting and deployment that more than one of them has."""
    contenders: list[Contender] = []
    for of_test in of_tests:  # the two of one test may be equal, as in A against A
        contenders += [each for each in of_test if not is_among(each, contenders)]
    return contenders


def is_among(contender: Contender, others: Sequence[Contender]) -> bool:
    """Return whether a contender is one of the others, under whatever name."""
    return any(_is_same(contender, other) for other in others)


def part_of(held: Round, ran: Sequence[Contender], contenders: Sequence[Contender]) -> Round:
    """Return what a round, in which `ran` took part, says of these contenders, under their own names."""
    names: dict[str, str] = {}
    for own in contenders:
        same = [other.names[0] for other in ran if _is_same(own, other)]
        names |= {own.names[0]: own.names[0] if own.names[0] in same else same[0]} if same else {}

    def renamed(by_name: Mapping[str, Any]) -> dict[str, Any]:
        return {own: by_name[name] for own, name in names.items() if name in by_name}

    return replace(
        held,
        slices=renamed(held.slices),
        failures=renamed(held.failures),
        hints=renamed(held.hints),
        memory=renamed(held.memory),
        not_finite=renamed(held.not_finite),
        interruptions=list(held.interruptions),
    )


def _is_same(a: Contender, b: Contender) -> bool:
    return a.setting == b.setting and a.deployment == b.deployment
