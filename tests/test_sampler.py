"""The sampler's parts: the gradient, shared curves, the design, costs, prior means, neighbours, and belief."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import optuna
import pytest

from tests.benchmarks.searchers import NEAR, Trials, run, tftune
from tests.benchmarks.surfaces import HELD_BACK, OPENMP, STOCK, TUNED_ON, Host, Surface
from tests.conftest import setting
from tests.frameworks import CATALOGUE, read_space, resolve
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.machine.host import Machine
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.stats import gp
from tuner.study.history import incumbent
from tuner.study.lattice import Encoding, Lattice
from tuner.study.record import Record, distributions
from tuner.study.sampler import LatticeSampler
from tuner.study.surrogate import posterior_means, posterior_moments
from tuner.study.trials import Trial
from tuner.trial.outcome import Status
from tuner.workload.workload import Workload

optuna.logging.set_verbosity(optuna.logging.WARNING)


def space_of(host: Host, build: str) -> Space:
    """Return the shipped space on a made machine."""
    return replace(TUNED_ON[0], host=host, build=build).space


def trial(number: int, at: Setting, log_ratio: float, se: float = 0.01) -> Trial:
    return Trial(number=number, setting=at, status=Status.OK, log_ratio=log_ratio, se=se, df=8, reference=1)


def study_of(space: Space, truth: Callable[[Setting], float], settings: Sequence[Setting]) -> optuna.Study:
    """Return a study in which these settings were measured."""
    study = optuna.create_study(direction="maximize")
    for at in settings:
        study.add_trial(
            optuna.trial.create_trial(
                value=truth(at),
                params=at.to_dict(),
                distributions=distributions(space),
                user_attrs={
                    "setting": at.to_dict(),
                    "log_ratio": truth(at),
                    "se": 0.005,
                    "eligible": True,
                    "status": "ok",
                },
            )
        )
    return study


def first_of(space: Space) -> list[Setting]:
    """Return what the sampler tries before the model has its say, and some settings more."""
    settings = [
        *space.baselines.values(),
        *FRAMEWORK.initial_design(space),
        *space.points[:: max(1, len(space.points) // 9)],
    ]
    return list(dict.fromkeys(settings))


# ---- the model -----------------------------------------------------------------------------------------------


def test_the_gradient_is_that_of_the_posterior() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((12, 4)), rng.normal(size=12)
    groups = (np.array([0, 1]), np.array([2]), np.arange(4))
    squares = (X[:, None, :] - X[None, :, :]) ** 2
    centre, spread = np.full(7, -0.5), np.full(7, 0.8)
    theta = centre + 0.5 * rng.normal(size=7)

    def value(at: np.ndarray) -> float:
        return gp.negative_log_posterior(at, squares, y, 0.01 * np.eye(12), groups, centre, spread)[0]

    _, gradient = gp.negative_log_posterior(theta, squares, y, 0.01 * np.eye(12), groups, centre, spread)
    numeric = [(value(theta + step) - value(theta - step)) / 2e-5 for step in 1e-5 * np.eye(7)]
    assert gradient == pytest.approx(numeric, rel=1e-5)


def test_a_curve_that_is_shared_is_known_where_it_was_not_measured() -> None:
    """Seven batch sizes of one thread count, and one of another: the other curve runs beside the first."""
    batch = np.linspace(0, 1, 7)
    X = np.vstack([np.column_stack([np.zeros(7), batch]), [[1.0, 0.0]]])
    y = 0.3 * np.sin(2 * X[:, 1]) - 0.2 * X[:, 0]
    N = 1e-5 * np.eye(8)
    shared = gp.fit(X, y, N, (np.array([0]), np.array([1])))
    mean, _ = gp.predict(shared, np.array([[1.0, 1.0]]))
    assert mean[0] == pytest.approx(0.3 * math.sin(2) - 0.2, abs=0.02)


def test_equal_data_give_equal_fits() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.random((9, 3)), rng.normal(size=9)
    a, b = (gp.fit(X, y, 0.01 * np.eye(9)) for _ in range(2))
    assert (a.lengthscales == b.lengthscales).all()


# ---- the lattice ---------------------------------------------------------------------------------------------


def test_neighbours_differ_in_one_knob_and_lie_on_the_lattice(space: Space) -> None:
    lattice = Lattice(space.points, Encoding(space.choices()), space.choices())
    at = space.points[len(space.points) // 2]
    near = [space.points[i] for i in lattice.neighbours([at])]
    assert at in near
    expected = {p for p in space.points if sum(a != b for a, b in zip(p.items, at.items, strict=True)) <= 1}
    assert set(near) == expected


def test_what_is_off_the_lattice_has_no_number(space: Space) -> None:
    lattice = Lattice(space.points[:5], Encoding(space.choices()), space.choices())
    assert list(lattice.numbers(space.points[:7])) == [0, 1, 2, 3, 4]


# ---- the design ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", [*TUNED_ON, *HELD_BACK], ids=lambda s: s.name)
def test_the_design_is_small_distinct_and_on_the_lattice(surface: Surface) -> None:
    space = surface.space
    chosen = FRAMEWORK.initial_design(space)
    assert len(chosen) == len(set(chosen)) <= 4
    assert not set(chosen) & set(space.baselines.values())
    assert set(chosen) <= set(space.points)


def test_the_design_shows_both_regimes_of_an_openmp_build() -> None:
    chosen = FRAMEWORK.initial_design(space_of(Host(cores=56, sockets=2, nodes=2), OPENMP))
    teams = {(s["inter_op"], s["omp_num_threads"], s["kmp_affinity"] == "none") for s in chosen}
    assert {(1, 56, False), (2, 28, True), (4, 14, True)} <= teams
    assert len({s.batch_size for s in chosen}) == 3


def test_two_cores_have_no_regimes_to_show() -> None:
    assert len(FRAMEWORK.initial_design(space_of(Host(cores=2, threads=1), STOCK))) == 0
    assert len(FRAMEWORK.initial_design(space_of(Host(cores=2, threads=1), OPENMP))) <= 2


def test_the_design_keeps_to_a_pin(machine: Machine, openmp: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    pinned = resolve(file, machine=machine, build=openmp, workload=resnet50, pins={"inter_op": "1"})
    chosen = FRAMEWORK.initial_design(pinned)
    assert all(s["inter_op"] == 1 and s["omp_num_threads"] == 8 for s in chosen)


# ---- proposing -----------------------------------------------------------------------------------------------


def test_what_gains_most_per_second_comes_first(space: Space) -> None:
    def truth(s: Setting) -> float:
        return -0.1 * abs(math.log2(int(s["intra_op"]) / 8)) - 0.05 * abs(math.log2(s.batch_size / 16))

    study = study_of(space, truth, first_of(space))
    sampler = LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space))
    free = sampler.propose(study)
    assert free is not None

    def cost_s(s: Setting) -> float:
        return 1000.0 if s["intra_op"] == free.setting["intra_op"] else 1.0

    cheap = sampler.propose(study, cost_s=cost_s)
    assert cheap is not None
    assert cheap.setting["intra_op"] != free.setting["intra_op"]
    assert cheap.expected_gain == free.expected_gain  # of what is dear, too: a search ends where nothing gains any more
    assert sampler.propose(study) == cheap
    frozen = study.get_trials()[0]
    assert sampler.sample_relative(study, frozen, {}) == cheap.setting.to_dict()


def test_where_nothing_is_gained_any_more_what_is_cheap_comes_first(space: Space) -> None:
    measured = [*first_of(space), *space.points[:: max(1, len(space.points) // 30)]]
    study = study_of(space, lambda s: 0.0 if s == space.reference else -1.0, list(dict.fromkeys(measured)))
    proposal = LatticeSampler(space, seed=0).propose(study, cost_s=lambda s: float(s.batch_size))
    assert proposal is not None
    assert proposal.expected_gain < 1e-3
    assert proposal.setting.batch_size == min(p.batch_size for p in space.points if p not in measured)


def test_a_cost_that_is_the_same_for_all_changes_nothing(space: Space) -> None:
    study = study_of(space, lambda s: 0.01 * s.batch_size**0.5, first_of(space))
    plain = LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space)).propose(study)
    assert (
        LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space)).propose(
            study, cost_s=lambda _: 5.0
        )
        == plain
    )


def test_a_prior_mean_that_is_the_truth_leads_to_the_top(space: Space) -> None:
    top = next(p for p in space.points if p["inter_op"] == 4 and p["intra_op"] == 16 and p.batch_size == 32)

    def truth(s: Setting) -> float:
        return 0.3 if s == top else 0.0

    def prior_mean(settings: Sequence[Setting]) -> np.ndarray:
        return np.array([truth(s) for s in settings])

    settings = [s for s in first_of(space) if s != top]
    study = study_of(space, truth, settings)
    informed = LatticeSampler(
        space, seed=0, initial_design=FRAMEWORK.initial_design(space), prior_mean=prior_mean
    ).propose(study)
    assert informed is not None
    assert informed.setting == top
    assert informed.expected_gain == pytest.approx(0.15, abs=0.03)  # no trial has told yet whether it is right


def test_a_proposal_looks_at_a_part_of_a_large_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes is a benchmark's question (`tests.benchmarks.searchers`): this is what it depends on."""
    surface = next(s for s in TUNED_ON if s.host.cores == 56 and s.build == OPENMP)
    space = surface.space
    assert len(space.points) > 100_000
    rng = np.random.default_rng(0)
    settings = [*first_of(space), *(space.points[i] for i in rng.integers(len(space.points), size=30))]
    study = study_of(space, lambda s: math.log(surface.rate(s)), list(dict.fromkeys(settings)))
    sampler = LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space))
    counts: list[int] = []
    predict = gp.predict

    def counting(posterior: gp.Posterior, Z: np.ndarray, trend: float) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
        counts.append(len(Z))
        return predict(posterior, Z, trend)

    monkeypatch.setattr(gp, "predict", counting)
    proposal = sampler.propose(study, cost_s=lambda _: 1.0)
    assert sum(counts) < len(space.points)
    assert proposal is not None
    assert proposal.setting not in settings


def test_a_model_is_asked_about_a_part_of_a_large_lattice() -> None:
    surface = next(s for s in TUNED_ON if s.host.cores == 56 and s.build == OPENMP)
    space = surface.space
    asked: set[Setting] = set()

    def prior_mean(settings: Sequence[Setting]) -> np.ndarray:
        asked.update(settings)
        return np.array([math.log(surface.rate(s)) for s in settings])

    settings = first_of(space)
    study = study_of(space, lambda s: math.log(surface.rate(s)), settings)
    sampler = LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space), prior_mean=prior_mean)
    first = sampler.propose(study)
    n_first = len(asked)
    assert first is not None
    assert first.setting not in settings
    assert 4000 <= n_first < 8000
    study.add_trial(study_of(space, lambda s: math.log(surface.rate(s)), [first.setting]).trials[0])
    assert sampler.propose(study) is not None
    assert len(asked) < n_first + 2000  # the same again, and what lies around the best
    assert sampler.trust(study) > 0.5


# ---- belief --------------------------------------------------------------------------------------------------


def test_the_incumbent_is_believed_to_be_best_and_not_just_lucky() -> None:
    choices = {"inter_op": (1,), "intra_op": tuple(range(1, 17)), "batch_size": (8,)}
    settings = [setting(inter_op=1, intra_op=n, batch_size=8) for n in range(1, 17)]
    trials = [trial(i, s, 0.1 * math.log2(i + 1), se=0.02) for i, s in enumerate(settings)]
    trials[3] = replace(trials[3], log_ratio=0.45, se=0.3)  # an outlier that knows how little it knows
    belief = posterior_means(trials, choices, process_sd=0.0)
    assert belief == posterior_means(trials, choices, process_sd=0.0)
    lucky, best = incumbent(trials), incumbent(trials, belief)
    assert lucky is not None
    assert best is not None
    assert lucky.setting["intra_op"] == 4
    assert int(best.setting["intra_op"]) >= 14


def test_what_was_not_measured_is_known_less_well() -> None:
    choices = {"inter_op": (1,), "intra_op": tuple(range(1, 17)), "batch_size": (8,)}
    settings = [setting(inter_op=1, intra_op=n, batch_size=8) for n in (1, 2, 3, 16)]
    trials = [trial(i, s, 0.1 * i, se=0.02) for i, s in enumerate(settings[:3])]
    moments = posterior_moments(trials, choices, process_sd=0.0, at=settings)
    sds = [sd for _, sd in moments.values()]
    assert max(sds[:3]) <= 0.02 < sds[3]
    assert {s: mean for s, (mean, _) in moments.items()} == posterior_means(
        trials, choices, process_sd=0.0, at=settings
    )


def test_nothing_is_believed_of_nothing() -> None:
    assert posterior_means([], {"batch_size": (8,)}, process_sd=0.01) == {}


def test_values_that_a_space_has_no_longer_are_believed_of_too() -> None:
    at = setting(inter_op=3, intra_op=1, batch_size=8)
    assert posterior_means([trial(0, at, 0.1)], {"inter_op": (1, 2)}, process_sd=0.01)[at] == pytest.approx(0.1)


# ---- the made surfaces ---------------------------------------------------------------------------------------


def test_the_surfaces_are_as_many_and_as_wide_as_promised() -> None:
    surfaces = [*TUNED_ON, *HELD_BACK]
    assert len(surfaces) >= 24
    assert {s.build for s in surfaces} == {STOCK, OPENMP}
    assert min(s.host.cores for s in surfaces) == 4
    assert max(s.host.cores for s in surfaces) == 128
    assert len({s.parameters for s in surfaces}) == len(surfaces)


@pytest.mark.parametrize("surface", [TUNED_ON[0], TUNED_ON[3], HELD_BACK[2]], ids=lambda s: s.name)
def test_a_surface_is_a_function_of_the_setting(surface: Surface) -> None:
    points = surface.space.points
    assert (surface.rates > 0).all()
    for i in range(0, len(points), len(points) // 20):
        assert surface.rate(points[i]) == pytest.approx(surface.rates[i])


def test_some_surfaces_have_two_basins() -> None:
    """Bound teams in one pool, and unbound ones in several, each better than what lies between."""

    def has_both(surface: Surface) -> bool:
        points, rates = surface.space.points, surface.rates
        bound = np.array([p.items[3][1] != "none" for p in points])
        one = np.array([p.items[0][1] == 1 for p in points])
        tops = {(b, o): float(rates[(bound == b) & (one == o)].max()) for b in (True, False) for o in (True, False)}
        return min(tops[True, True], tops[False, False]) > max(tops[True, False], tops[False, True])

    some = (s for s in (*TUNED_ON, *HELD_BACK) if s.build == OPENMP and has_both(s))
    assert len(list(itertools.islice(some, 4))) == 4


def test_the_search_on_a_surface_ends_near_its_optimum() -> None:
    surface = HELD_BACK[0]
    result = run(tftune, [surface], seeds=[0])
    assert result.never == 0.0
    assert Trials(surface, 0).found_at == 41
    assert surface.best >= surface.rates.max() > NEAR * surface.rates.max()


def test_a_setting_that_promises_far_less_than_one_that_waits_is_told_to_be_poor() -> None:
    """One thread is hopeless, and the only process of two threads is busy with another batch size."""
    batches: tuple[Value, ...] = (1, 2, 4, 8, 16)
    domains: dict[str, tuple[Value, ...]] = {"inter_op": (1, 2), "intra_op": (1, 2), "batch_size": batches}
    points = [
        setting(inter_op=i, intra_op=n, batch_size=b) for i in (1, 2) for n in (1, 2) for b in domains["batch_size"]
    ]
    default = setting(inter_op=2, intra_op=2, batch_size=8)
    space = Space(
        name="small", catalogue=CATALOGUE, domains=domains, inactive={}, points=tuple(points),
        baselines={"tf-default": default},
    )  # fmt: skip

    def truth(at: Setting) -> float:
        return 0.02 * math.log2(at.batch_size) - 1.0 * (at["intra_op"] == 1) - 0.5 * (at["inter_op"] == 1)

    measured = [each for each in points if each.batch_size in (1, 8)]
    study = study_of(space, truth, measured)
    study.sampler = sampler = LatticeSampler(space, seed=0)
    record = Record(study)
    first = sampler.propose(study, cost_s=lambda _: 1.0)
    assert first is not None
    assert (first.setting["inter_op"], first.setting["intra_op"], first.is_poor) == (2, 2, False)
    record.begin(distributions(space))
    second = sampler.propose(study, cost_s=lambda _: 1.0)
    assert second is not None
    assert second.setting["inter_op"] == 1 or second.setting["intra_op"] == 1  # its process is free
    assert second.is_poor
