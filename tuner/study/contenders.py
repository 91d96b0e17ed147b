"""Choose the contenders of the finals, and their order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tuner.measure.planning import TYPICAL_ROUNDS, FinalsPlan
from tuner.measure.recommendation import simplicity
from tuner.measure.rounds import INCUMBENT, ONE_PROCESS, SAME_BATCH, SIMPLER, Contender
from tuner.space.catalogue import Catalogue
from tuner.space.groups import is_group
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.stats.equivalence import verdict_probability
from tuner.stats.noise import Noise
from tuner.study.history import incumbent, tied
from tuner.study.trials import Trial
from tuner.trial.outcome import Status


def choose_contenders(
    best: Setting | None,
    trials: Sequence[Trial],
    space: Space,
    noise: Noise,
    plan: FinalsPlan,
    *,
    margin: float,
    posterior: Mapping[Setting, float],
) -> list[Contender]:
    """Return the contenders: the incumbent, the framework's default, and rivals in the order of what they could say.

    The incumbent is the `best`. If that is the default itself or None, the best of the others stands against it. A
    simpler setting that may be recommended in the incumbent's place is the first rival; of the others those come first
    of which a verdict is likely, by `posterior`, the posterior mean of each setting that was measured (log-ratio).
    """
    void = _void(trials, space.catalogue)
    if best is None or best == space.reference:
        best = _best_other(trials, space, posterior, void)
    if best is None:
        return contenders_of(None, space, without=void)
    settings = [trial.setting for trial in tied(trials, process_sd=noise.process_sd, posterior=posterior)]
    simpler = min(settings, key=lambda setting: simplicity(setting, space.reference, space.catalogue), default=None)
    first, second, *rivals = contenders_of(best, space, without=void, simpler=simpler)
    se = noise.finals_se(rounds=TYPICAL_ROUNDS, slices=plan.independent_slices)

    def urgency(rival: Contender) -> tuple[bool, float]:
        gain = posterior.get(rival.setting)
        chance = 0.0 if gain is None else verdict_probability(posterior.get(best, 0.0) - gain, se, margin=margin)
        return SIMPLER not in rival.names, -chance

    return [first, second, *sorted(rivals, key=urgency)]


def _void(trials: Sequence[Trial], catalogue: Catalogue) -> list[Setting]:
    """Return the settings that are no rivals: what does not hold, and failed advice that need not run."""
    ran = {trial.setting for trial in trials if trial.status is Status.OK}
    return [
        trial.setting
        for trial in trials
        if trial.is_inapplicable
        or (
            trial.baselines
            and trial.setting not in ran
            and (is_group(trial.setting) or not catalogue.must_run(trial.baselines))
        )
    ]


def _best_other(
    trials: Sequence[Trial], space: Space, posterior: Mapping[Setting, float], without: Collection[Setting]
) -> Setting | None:
    """Return the best setting besides the default: if there is none that may be chosen, any that ran, or a baseline.

    Somebody has to stand against the default, even where all others were stopped early or break a limit.
    """
    void = {setting.without("batch_size") for setting in without}
    candidates = [t for t in trials if t.setting != space.reference and t.setting.without("batch_size") not in void]
    best = incumbent(candidates, posterior)
    if best is None:
        measured = [trial for trial in candidates if trial.estimate is not None]
        best = max(measured, key=lambda trial: trial.log_ratio or 0.0, default=None)
    if best is not None:
        return best.setting
    return next(
        (
            s
            for s in space.baselines.values()
            if s.without("batch_size") not in void | {space.reference.without("batch_size")}
        ),
        None,
    )


def answer_contenders(
    name: str, setting: Setting, space: Space, *, one_process: Setting | None = None
) -> list[Contender]:
    """Return the contenders of the finals of another answer: its setting under that name, and the default.

    The best of one process is a rival, where it is given.
    """
    default_names = tuple(name for name, baseline in space.baselines.items() if baseline == space.reference)
    recommended_by = space.groups.get(setting) or [own for own, each in space.baselines.items() if each == setting]
    names = {setting: (name, *recommended_by), space.reference: default_names}
    if one_process is not None and one_process != space.reference:
        names[one_process] = (ONE_PROCESS,)
    return [Contender(names=own, setting=each, deployment=space.deployment(each)) for each, own in names.items()]


def contenders_of(
    best: Setting | None, space: Space, *, without: Collection[Setting] = (), simpler: Setting | None = None
) -> list[Contender]:
    """Return the contenders of the finals, one for each distinct setting, with all its names.

    The first is the best, the second the framework's default. `simpler` is the simplest setting that the search could
    not tell apart from the best. The settings in `without` are left out, at another batch size too.

    The guides say nothing of batch sizes. Where the winner's differs from the default, the default, and a guide
    that asks for it, stand again at the winner's, so that the gain of the batch and of the threads are separated.
    """
    named = ({INCUMBENT: best} if best is not None else {}) | space.baselines
    if best is not None and space.total_batch is None and best.batch_size != space.reference.batch_size:
        guides = [each.name for each in space.catalogue.baselines if each.at_best_batch]
        for name in (space.default, *guides):
            if name in space.baselines:  # a guide to CPUs says nothing of a GPU
                named[name + SAME_BATCH] = space.baselines[name].with_values(batch_size=best.batch_size)
    if simpler is not None and simpler not in named.values():
        named[SIMPLER] = simpler
    threads = {setting.without("batch_size") for setting in without}
    named = {
        name: setting
        for name, setting in named.items()
        if name in (INCUMBENT, space.default) or setting.without("batch_size") not in threads
    }
    contenders = []
    for setting in distinct(named.values()):
        names = tuple(name for name, other in named.items() if other == setting)
        is_default = any(name.removesuffix(SAME_BATCH) == space.default for name in names)
        contenders.append(
            Contender(
                names=names,
                setting=setting,
                deployment=space.deployment(setting),
                eligible=is_default or space.satisfies_pins(setting),
            )
        )
    first = [c for c in contenders if INCUMBENT in c.names] + [c for c in contenders if space.default in c.names]
    return first + [c for c in contenders if c not in first]
