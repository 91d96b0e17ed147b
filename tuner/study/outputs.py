"""What trials compute, held against what the reference computes."""

from __future__ import annotations

from dataclasses import replace

from tuner.measure import agreement
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.study.processes import Processes
from tuner.study.trials import Trial
from tuner.trial.outcome import ReadyReport, Status


class Outputs:
    """The outputs of the live reference, which those of trials are compared with."""

    def __init__(self, space: Space, processes: Processes) -> None:
        self._space, self._processes = space, processes
        self.are_random = False
        """Whether two processes of the default compute different outputs, so that nothing can be compared."""

    def refused(self, trial: Trial, facts: ReadyReport) -> Trial | None:
        """Return a trial whose outputs are not those of the reference as an invalid one, None if they are."""
        off, reference = self.deviation(trial, facts), self._processes.reference
        if off is not None and off > agreement.TOLERANCE:
            sample = None if reference is None else reference.sample
            differ = f"its outputs differ from the reference's by {100 * off:.3g} %"
            message = agreement.moved_text(sample, facts.sample, than="the reference's") or differ
            return replace(trial, status=Status.INVALID, message=message, deviation=off)
        strange = None if reference is None else agreement.only_not_finite(facts.not_finite, reference.not_finite)
        if strange is not None:
            message = f"{strange}, and the reference's are finite"
            return replace(trial, status=Status.INVALID, message=message, deviation=off)
        return None

    def deviation(self, trial: Trial, facts: ReadyReport) -> float | None:
        """Return how far the outputs lie from the reference's; a batch of another size may compute another thing.

        Of a setting that changes numerics the first item is compared all the same: how much it does is to be told.
        """
        reference = self._processes.reference
        is_other = trial.setting.batch_size != self._space.reference.batch_size
        if reference is None or self.are_random or (is_other and not self._changes_numerics(trial.setting)):
            return None
        return agreement.deviation(reference.sample, facts.sample)

    def _changes_numerics(self, setting: Setting) -> bool:
        """Return whether a setting computes in another precision than the default."""
        knobs, default = self._space.catalogue.knobs, self._space.reference
        return any(knobs[name].changes_numerics and value != default[name] for name, value in setting.items)
