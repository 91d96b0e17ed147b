"""The finals of a search: who takes part, how much time they need, and what of them is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuner.errors import TunerError
from tuner.measure.contest import FEWEST, Contest
from tuner.measure.finals import Contender, Round
from tuner.measure.planning import Cost, fit_plan, needed_s
from tuner.search.budget import Countdown
from tuner.search.events import Events
from tuner.search.history import History
from tuner.search.lineup import line_up
from tuner.search.plan import Plan
from tuner.search.processes import Processes
from tuner.search.record import Record, now
from tuner.space.space import Space
from tuner.trial.launcher import Launcher

_SHARE = 0.5  # of the time budget, at most, is kept for their first rounds
_MEMORY_MARGIN = 1.1
_SOUGHT_GAIN = 0.03  # the smallest gain that they are given the time to find, as far as the budget goes

Replicas = Callable[[Sequence[Contender]], Sequence[Launcher]]
"""Returns what forks the processes of contenders, if anything does; whoever gives it ends them."""


class Finals:
    """The finals of one run of a study."""

    def __init__(
        self,
        *,
        record: Record,
        history: History,
        space: Space,
        launcher: Launcher,
        replicas: Replicas,
        processes: Processes,
        plan: Plan,
        time: Countdown,
        events: Events,
        seed: int,
    ) -> None:
        """Fresh processes come from `launcher`; those of the search, `processes`, tell what a start and a step cost."""
        self._record = record
        self._history = history
        self._space = space
        self._launcher = launcher
        self._replicas = replicas
        self._processes = processes
        self._plan = plan
        self._time = time
        self._events = events
        self._seed = seed
        self._began = ""
        self._earlier: dict[str, object] | None = record.get("finals")
        """Those of an earlier session, until these can stand in for them."""
        self.rounds: list[Round] = []

    def reserve_s(self) -> float:
        """Return the time that the finals need for a small gain, and no more than their share of the budget."""
        costs = self._costs(self._line_up()[:2])
        if len(costs) < 2:
            return 0.0
        needed = 2 * needed_s(self._plan.finals, self._history.noise(), costs, gain=_SOUGHT_GAIN)
        return needed if self._time.total_s is None else min(needed, _SHARE * self._time.total_s)

    def hold(self) -> None:
        """Hold rounds until every comparison is decided or the time is used up."""
        if self._history.incumbent() is None:
            seen = [
                (trial.step_s, trial.peak_memory_bytes) for trial in self._history.trials if trial.estimate is not None
            ]
            if self._plan.bench.limits and seen:
                nearest = self._plan.bench.limits.nearest(seen)
                raise TunerError(
                    f"none of {len(seen)} trials keeps to the limits; the nearest were {nearest}",
                    "raise the limit, or give a longer --time-budget to find what keeps to it",
                )
            raise TunerError("no trial gave a number", "`tftune show` has the reason of each")
        contenders = self._line_up()
        if len(contenders) < 2:
            raise TunerError(
                "there is nothing to compare the default with", "give a --space or --set with more settings"
            )
        self._events.stage(
            f"finals: the incumbent against {contenders[1].names[0]}"
            + (f", then against {len(contenders) - 2} more" if len(contenders) > 2 else "")
            + f"; differences under {100 * self._plan.margin:g} % are treated as equal"
        )
        contest = Contest(
            contenders=contenders,
            launcher=self._launcher,
            replicas=self._replicas(contenders),
            plan=fit_plan(
                self._plan.finals,
                self._history.noise(),
                self._costs(contenders[:2]),
                left_s=self._time.left_s(),
                resident=self._resident(),
            ),
            objective=self._plan.bench.objective,
            margin=self._plan.margin,
            rng=np.random.default_rng([self._seed, len(self._record.runs())]),
            left_s=self._time.left_s,
            say=self._events.stage,
        )
        self.rounds, self._began = contest.rounds, now()

        def after_round() -> None:
            self._keep(contest)
            self._events.round_ends(len(contest.rounds), contest.rounds[-1], self._time.left_s())

        contest.hold(after_round)

    def _costs(self, contenders: Sequence[Contender]) -> list[Cost]:
        """Return what each contender costs, as the trials of its batch size tell."""
        # Where another batch size went on in a process, its trial tells nothing of a start.
        starts_s = [
            trial.start_s for trial in self._history.trials if trial.facts is not None and trial.facts["load_s"] > 0
        ]
        start_s = max(starts_s[-6:], default=self._processes.start_s)
        steps_s = {
            trial.setting.batch_size: trial.pair.candidate[-1].elapsed_s / trial.pair.candidate[-1].n_steps
            for trial in self._history.trials
            if trial.pair is not None
        }
        usual_s = self._processes.step_s
        return [Cost(start_s=start_s, step_s=steps_s.get(c.setting.batch_size, usual_s)) for c in contenders]

    def _line_up(self) -> list[Contender]:
        """Return the contenders of finals that were held now."""
        return line_up(
            self._history.trials,
            self._space,
            self._history.noise(),
            self._plan.finals,
            margin=self._plan.margin,
            belief=self._history.belief(),
        )

    def _resident(self) -> int | None:
        """Return how many processes fit into the memory, as the trials' peaks tell; None if they do not."""
        peaks = [t.peak_memory_bytes for t in self._history.trials if t.peak_memory_bytes]
        free = self._plan.bench.free_memory_bytes()
        return None if not peaks or free is None else int(free / (_MEMORY_MARGIN * max(peaks)))

    def _keep(self, contest: Contest) -> None:
        """Store the finals so far, from the second round on: one alone decides nothing.

        A killed run keeps what it had; earlier finals stay until these have ended.
        """
        if contest.n_rounds < FEWEST or (self._earlier is not None and not contest.ended):
            return
        if self._earlier is not None:
            self._record.put("earlier_finals", [*self._record.get("earlier_finals", []), self._earlier])
            self._earlier = None
        self._record.put(
            "finals",
            {
                "began": self._began,
                "contenders": [c.to_dict() for c in contest.contenders],
                "rounds": [round_.to_dict() for round_ in contest.rounds],
                "margin": contest.margin,
                "levels": contest.levels,
                "ended": contest.ended,
            },
        )
