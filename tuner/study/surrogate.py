"""The surrogate: Gaussian processes of a study's trials, with the noise of each and the process effects they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import block_diag

from tuner.machine.blas import one_blas_thread
from tuner.space.setting import Setting, distinct
from tuner.space.values import Value
from tuner.stats import gp
from tuner.stats.estimate import Array
from tuner.study.lattice import Encoding
from tuner.study.trials import Trial

PriorMean = Callable[[Sequence[Setting]], Array]
"""What is expected of settings before anything is measured: log-ratios to the default, shape (settings,)."""


def fit(
    trials: Sequence[Trial], encoding: Encoding, process_sd: float, *, prior_mean: PriorMean | None = None
) -> gp.Mixture | None:
    """Return the Gaussian processes of the trials that gave a number, or None if none did.

    `process_sd` is σ_p (log scale); see `noise_of`. With a `prior_mean` there are processes with
    it as their trend, and others without; which are believed is for the trials to say.
    """
    estimated = [(t, estimate) for t in trials if (estimate := t.estimate) is not None]
    if not estimated:
        return None
    settings = [t.setting for t, _ in estimated]
    y = np.array([estimate.mean for _, estimate in estimated])
    N = noise_of([t for t, _ in estimated], process_sd)
    X = encoding.encode(settings)
    groupings = _groupings(encoding)
    trends = [None] if prior_mean is None else [None, prior_mean(settings)]
    return gp.mixture([[gp.fit(X, y, N, groups, trend) for groups in groupings] for trend in trends])


def noise_of(trials: Sequence[Trial], process_sd: float) -> Array:
    """Return the covariance N (n, n) of the noise of trials that gave a number, as all passes together have it.

    Trials of earlier versions were paired with a reference. Each shares the luck of its process with those of other
    batch sizes in it, and the luck of its reference with all others that were compared with it.
    """
    estimates = [trial.estimate for trial in trials]
    pairs = np.array([not trial.passes for trial in trials])
    references = np.array([trial.reference for trial in trials])
    # Where it is not known in which process a trial ran, it had one of its own.
    processes = np.array([trial.process or -1 - i for i, trial in enumerate(trials)])
    N = np.diag([0.0 if each is None else each.se**2 for each in estimates])
    for same in (processes, references):
        N = N + process_sd**2 * (same[:, None] == same[None, :]) * np.outer(pairs, pairs)
    for i, trial in enumerate(trials):
        for j, other in enumerate(trials):
            if trial.covariance is not None and other.number in trial.covariance:
                N[i, j] = trial.covariance[other.number]
    return np.asarray(N)


def fit_with_pending(
    trials: Sequence[Trial],
    pending: Sequence[Setting],
    encoding: Encoding,
    process_sd: float,
    *,
    prior_mean: PriorMean | None = None,
) -> gp.Mixture | None:
    """Return the processes of the trials, in which those under way came out as expected; None without trials.

    This "kriging believer" keeps settings that are started together apart: Ginsbourger et al. (2010),
    Kriging is well-suited to parallelize optimization, section 4.2.
    """
    mixture = fit(trials, encoding, process_sd, prior_mean=prior_mean)
    if mixture is None or not pending:
        return mixture
    x = encoding.encode(pending)
    trend = np.zeros(len(pending)) if prior_mean is None else prior_mean(pending)
    believing = tuple(
        gp.condition(
            np.vstack([each.X, x]),
            np.concatenate([each.y, gp.predict(each, x, trend)[0]]),
            block_diag(each.N, process_sd**2 * np.eye(len(pending))),
            each.lengthscales,
            each.amplitudes,
            each.groups,
            None if each.trend is None else np.concatenate([each.trend, trend]),
        )
        for each in mixture.posteriors
    )
    return replace(mixture, posteriors=believing)


def posterior_means(
    trials: Sequence[Trial],
    choices: Mapping[str, Sequence[Value]],
    *,
    process_sd: float,
    additive: Sequence[str] = (),
    at: Sequence[Setting] = (),
) -> dict[Setting, float]:
    """Return the posterior mean (log-ratio) of each setting that gave a number: what `incumbent` chooses by.

    The arguments are those of `posterior_moments`.
    """
    moments = posterior_moments(trials, choices, process_sd=process_sd, additive=additive, at=at)
    return {setting: mean for setting, (mean, _) in moments.items()}


def posterior_moments(
    trials: Sequence[Trial],
    choices: Mapping[str, Sequence[Value]],
    *,
    process_sd: float,
    additive: Sequence[str] = (),
    at: Sequence[Setting] = (),
) -> dict[Setting, tuple[float, float]]:
    """Return the posterior mean (log-ratio) of each setting that gave a number, and its standard deviation.

    `choices` are the values of each knob, as `Space.choices` has them; what an older space had beside them is added.
    `additive` are knobs as `Space.additive` has them. The same trials give the same means. `at` are settings to predict
    instead.
    """
    values = {name: dict.fromkeys(knob_values) for name, knob_values in choices.items()}
    for setting in [*(trial.setting for trial in trials), *at]:
        for name, value in setting.items:
            values.setdefault(name, {}).setdefault(value)
    encoding = Encoding({name: tuple(knob_values) for name, knob_values in values.items()}, additive=additive)
    with one_blas_thread():
        posterior = fit(trials, encoding, process_sd)
        if posterior is None:
            return {}
        settings = distinct(at or (t.setting for t in trials if t.estimate is not None))
        mean, sd = gp.moments_of(posterior, encoding.encode(settings))
    return dict(zip(settings, zip(mean.tolist(), sd.tolist(), strict=True), strict=True))


def _groupings(encoding: Encoding) -> list[gp.Groups]:
    """Return the ways to group the coordinates that the model is averaged over.

    In the first every knob interacts with all others. In the second each additive knob, such as the batch size, has a
    curve that all settings share, and the others interact: fewer trials show more, where the truth is near that.
    Neither is best on all machines.
    """
    every = encoding.coordinates(*encoding.knobs)
    additive = [[name] for name in encoding.additive if name in encoding.knobs]
    interacting = [name for name in encoding.knobs if name not in encoding.additive]
    groups = [group for names in (*additive, interacting) if len(group := encoding.coordinates(*names))]
    return [[every], [*groups, every]] if len(groups) > 1 else [[every]]
