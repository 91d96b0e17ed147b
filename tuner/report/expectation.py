"""What a model of the machine expected of a study before its trials, and how right it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tuner.report.layout import percent, ratio_text
from tuner.report.result.study import ExpectationResult, StudyResult
from tuner.report.terminal import fixed_knobs, setting_text
from tuner.stats.rank import rank_correlation
from tuner.study.attributes import Prediction
from tuner.study.trials import Trial
from tuner.trial.outcome import Status

_LEAST_RANKED = 5  # settings, of which an order says something


def expectation_of(
    prediction: Prediction | None, trials: Sequence[Trial], ratio_of: Callable[[Trial], Mapping[str, float | None]]
) -> ExpectationResult | None:
    """Return how right the model was, None where none was asked; `ratio_of` is what is published of a trial's ratio."""
    if prediction is None:
        return None
    measured = {trial.number: estimate.mean for trial in trials if (estimate := trial.estimate) is not None}
    both = [(log_ratio, measured[number]) for number, log_ratio in prediction.log_ratios if number in measured]
    own = next((trial for trial in trials if trial.setting.to_dict() == prediction.best), None)
    ratio = {} if own is None else ratio_of(own)
    predicted_values, measured_values = np.array(both).reshape(-1, 2).T
    return ExpectationResult(
        setting=prediction.best,
        predicted=math.exp(prediction.best_log_ratio),
        status=None if own is None else own.status,
        ratio=ratio.get("ratio"),
        low=ratio.get("low"),
        high=ratio.get("high"),
        rank_correlation=rank_correlation(predicted_values, measured_values) if len(both) >= _LEAST_RANKED else None,
        settings=len(both),
        trust=prediction.trust,
    )


def expectation_rows(study: StudyResult) -> Iterator[tuple[str, str]]:
    """Yield the row of a card, where a model was asked and there was something to choose."""
    expectation = study.expectation
    words = "" if expectation is None else setting_text(expectation.setting, fixed_knobs(study))
    if expectation is None or not words:
        return
    if expectation.ratio is not None:
        outcome = f"its trial: {ratio_text(expectation.ratio, expectation.low, expectation.high)}"
    elif expectation.status is None:
        outcome = "it was not tried"
    else:
        outcome = "its trial gave no figure" + ("" if expectation.status is Status.OK else f" ({expectation.status})")
    ranks = expectation.rank_correlation
    order = "" if ranks is None else f"; rank correlation {ranks:.2f} over {expectation.settings} settings"
    weight = "" if expectation.trust is None else f"; weight of the model at the end {percent(expectation.trust, 0)}"
    yield "Predicted", f"{expectation.predicted:.2f}× the default with {words}; {outcome}{order}{weight}"
