"""What a model of the machine is for a search: a trend that the trials may believe, and when it is asked at all."""

from __future__ import annotations

import math
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from threadpoolctl import threadpool_info

from tests.benchmarks.priors import surfaces
from tests.conftest import Call
from tuner.errors import BadInputError
from tuner.job import predict as predict_module
from tuner.job import run as search_job
from tuner.job import suite
from tuner.job.frameworks import comparison as frameworks_job
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.predict import Capture, cached_capture, cached_captures, new_capture, profiled_sizes
from tuner.job.request import FrameworksRequest, SearchRequest, SuiteRequest
from tuner.job.run import ProfileKind
from tuner.job.servers import Servers
from tuner.machine.blas import one_blas_thread
from tuner.machine.host import detect
from tuner.machine.spec import parse_spec
from tuner.model.prediction import PredictedRatio
from tuner.result.document import expectation_of
from tuner.space.space import Space
from tuner.stats import gp
from tuner.stats.estimate import rank_correlation
from tuner.study.attributes import Prediction
from tuner.study.lattice import thinned
from tuner.study.trials import Trial
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec

CAPTURES = Path(__file__).parent / "data" / "machines"
QUICK, THOROUGH = ProfileKind.QUICK, ProfileKind.THOROUGH
NONE: Any = None  # of launchers, where none is asked

# ---- the trend -------------------------------------------------------------------------------------------------


def test_a_trend_is_the_formula_of_explicit_basis_functions() -> None:
    """Rasmussen & Williams, eqs. 2.39-2.41: the coefficient of the trend has a normal prior of mean 1."""
    rng = np.random.default_rng(0)
    X, Z = rng.random((6, 2)), rng.random((4, 2))
    t, at = rng.normal(size=6), rng.normal(size=4)
    y, N = 0.8 * t + 0.1 * rng.normal(size=6), 0.01 * np.eye(6)
    lengths, amplitudes = np.array([0.4, 0.7]), np.array([0.2])
    fitted = gp.condition(X, y, N, lengths, amplitudes, None, t)
    K = gp.matern(X, X, lengths, 0.2) + 0.3**2 * np.outer(t, t) + N
    k = gp.matern(X, Z, lengths, 0.2) + 0.3**2 * np.outer(t, at)
    ones, inverse = np.ones(6), np.linalg.inv(K)
    mu = ones @ inverse @ (y - t) / (ones @ inverse @ ones)
    mean, sd = gp.predict(fitted, Z, at)
    assert mean == pytest.approx(mu + at + k.T @ inverse @ (y - t - mu))
    variance = 0.2**2 + 0.3**2 * at**2 - np.einsum("im,ij,jm->m", k, inverse, k)
    assert sd == pytest.approx(np.sqrt(variance))


def test_a_process_without_a_trend_does_not_look_at_one() -> None:
    X = np.linspace(0, 1, 5)[:, None]
    plain = gp.fit(X, np.sin(X[:, 0]), 0.01 * np.eye(5))
    assert gp.predict(plain, X, np.full(5, 9.0))[0] == pytest.approx(gp.predict(plain, X)[0])


@pytest.mark.parametrize(("slope", "is_believed"), [(1.0, True), (0.8, True), (0.0, False)])
def test_the_evidence_tells_whether_a_trend_is_believed(slope: float, is_believed: bool) -> None:
    rng = np.random.default_rng(3)
    X = rng.random((14, 3))
    # Rough, so that no smooth process could stand in for it.
    trend = 0.4 * np.sin(40 * X[:, 0]) * np.cos(31 * X[:, 1])
    y = slope * trend + 0.1 * X[:, 2] + 0.01 * rng.normal(size=14)
    N = 1e-4 * np.eye(14)
    mixture = gp.mixture([[gp.fit(X, y, N)], [gp.fit(X, y, N, trend=trend)]])
    assert sum(mixture.weights) == pytest.approx(1.0)
    assert (gp.trust(mixture) > 0.9) if is_believed else (gp.trust(mixture) < 0.4)


def test_of_many_points_some_are_asked_about_and_always_the_same() -> None:
    assert thinned(7).tolist() == list(range(7))
    few = thinned(100_000, 50)
    assert len(set(few.tolist())) == 50
    assert few.tolist() == thinned(100_000, 50).tolist()


# ---- the model -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> PredictedRatio:
    """What a real profile of LeNet-5 makes of a machine with 16 cores."""
    return next(each for each in surfaces() if each.name == "lenet5, cores=16, stock").model()


def test_ratios_are_to_the_reference_and_each_setting_is_simulated_once(
    model: PredictedRatio, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = model.reference.with_values(inter_op=1, intra_op=4)
    assert model([model.reference]) == pytest.approx([0.0])
    value = model([setting])
    monkeypatch.setattr("tuner.model.prediction.rate_of", lambda *_: pytest.fail("simulated again"))
    assert model([setting, setting]) == pytest.approx([*value, *value])


def test_the_best_is_the_simplest_of_the_fastest(model: PredictedRatio) -> None:
    one = model.reference.with_values(inter_op=1, intra_op=1)
    points = [one, model.reference, one.with_values(intra_op=16)]
    ratios = dict(zip(points, model(points), strict=True))
    best = model.best(points)
    assert ratios[best] >= max(ratios.values()) - math.log(1.02)


# ---- when it is asked ------------------------------------------------------------------------------------------


def asked(**options: object) -> Job:
    """Return a real job of a shipped workload."""
    request = SearchRequest(workload=WorkloadSpec.of_name("lenet5"), **options)  # type: ignore[arg-type]
    return prepare(parse_request(request, stores=False))


class Told:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def notice(self, line: str) -> None:
        self.lines.append(line)

    def began(self, threads: int) -> None:
        self.lines.append(f"{threads} threads")

    def ended(self, traced: object) -> None:
        pass


NOTHING_TO_CHOOSE = {"pins": ["inter_op=1", "intra_op=1"], "batch_size": "8"}


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("options", "on_few_cores", "on_many"),
    [
        ({}, None, QUICK),  # five minutes
        ({"time_budget": "599s"}, None, QUICK),
        ({"time_budget": "99s"}, None, None),
        ({"time_budget": "10m"}, THOROUGH, THOROUGH),
        ({"time_budget": "10m", "predict": False}, None, None),
        ({"time_budget": "1m", "predict": True}, QUICK, QUICK),
        ({"time_budget": "10m", "predict": True}, THOROUGH, THOROUGH),
        ({"time_budget": "1h", "objective": "latency"}, None, None),
        ({"time_budget": "1h"} | NOTHING_TO_CHOOSE, None, None),
        (NOTHING_TO_CHOOSE, None, None),
        ({"trials": 50}, None, QUICK),
        ({"trials": 50, "predict": True}, THOROUGH, THOROUGH),
    ],
)
def test_the_model_is_asked_where_that_costs_little_or_was_asked_for(
    options: dict[str, object], on_few_cores: ProfileKind | None, on_many: ProfileKind | None
) -> None:
    job = asked(**options)
    for spec in ("cores=2", "cores=7", "cores=4,smt=2", "cores=16,quota=4"):
        assert search_job.kind_of(replace(job, machine=parse_spec(spec).machine())) is on_few_cores
    for spec in ("cores=8", "sockets=2,cores=28,smt=2"):
        assert search_job.kind_of(replace(job, machine=parse_spec(spec).machine())) is on_many


@pytest.mark.tensorflow
def test_a_captured_machine_of_many_cores_gets_a_quick_profile(tmp_path: Path) -> None:
    with tarfile.open(CAPTURES / "x86_64-64cpu.tar.gz") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    job = asked()
    assert search_job.kind_of(replace(job, machine=detect(tmp_path / "x86_64-64cpu"))) is QUICK


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_quick_profile_is_kept_apart_until_a_thorough_one_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_module, "cache_dir", lambda: tmp_path)
    job = asked(predict=True, time_budget="1m")
    told = Told()
    job.export()
    with Servers(job, notify=told.lines.append) as servers:
        forks = servers.search_launcher()
        assert forks is not None
        ratio = search_job.prior_of(job, QUICK, forks, told)
    assert ratio is not None
    assert ratio([job.space.reference]) == pytest.approx([0.0])
    assert np.isfinite(ratio(job.space.points)).all()
    assert told.lines == [f"{n} threads" for n in sorted({1, job.machine.usable_cpus})]
    sizes = profiled_sizes(job)
    quick = cached_capture(job, sizes, is_quick=True, notify=told.notice)
    assert quick is not None
    assert quick.is_quick
    assert cached_capture(job, sizes, notify=told.notice) is None
    assert quick not in cached_captures()
    with monkeypatch.context() as patch:  # the next search takes it from the cache
        patch.setattr(search_job, "quick_capture", lambda *_, **__: pytest.fail("profiled again"))
        again = search_job.prior_of(job, QUICK, NONE, told)
    assert again is not None
    assert again(job.space.points) == pytest.approx(ratio(job.space.points))
    rows = {size: quick.traced[max(quick.traced)] for size in sizes}  # as if it had been thorough
    monkeypatch.setattr(predict_module, "trace", lambda *_, **__: rows)
    thorough = new_capture(job, sizes, events=SimpleNamespace(notice=told.notice))  # type: ignore[arg-type]
    assert not thorough.is_quick
    assert cached_capture(job, sizes, is_quick=True, notify=told.notice) is None
    monkeypatch.setattr(search_job, "quick_capture", lambda *_, **__: pytest.fail("profiled again"))
    assert search_job.prior_of(job, QUICK, NONE, told) is not None  # from the thorough one


@pytest.mark.tensorflow
@pytest.mark.parametrize("error", [BadInputError("a step cannot be profiled: made", "none"), OSError("no space left")])
def test_a_profile_that_fails_ends_a_search_only_where_it_was_asked_for(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Capture:
        raise error

    monkeypatch.setattr(search_job, "cached_capture", lambda *_, **__: None)
    monkeypatch.setattr(search_job, "new_capture", fail)
    told = Told()
    assert search_job.prior_of(asked(time_budget="10m"), THOROUGH, NONE, told) is None
    assert told.lines == [f"the search goes on without predictions: {getattr(error, 'message', error)}"]
    with pytest.raises(type(error)):
        search_job.prior_of(asked(time_budget="10m", predict=True), THOROUGH, NONE, told)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lenet5", "--objective", "latency"], "--predict: only throughput is predicted, and the objective is"),
        (["lenet5", "--rate", "20"], "--predict: "),
        (["lenet5", "--execution", "eager"], "--predict: "),
        (["lenet5+mlp"], "--predict: an ensemble has several models"),
        (["lenet5", "--framework", "onnxruntime"], "--predict: ONNX Runtime shows none of its operators"),
        (["--metric-regex", "x=([0-9]+)", "--", "echo", "x=1"], "--predict: commands cannot be traced"),
    ],
)
def test_what_cannot_be_predicted_is_refused_before_anything_runs(
    call: Call, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "launcher", lambda *_, **__: pytest.fail("started something"))
    code, out, err = call("search", "--predict", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "leave --predict out" in err


def test_suites_and_comparisons_of_frameworks_do_not_ask_it() -> None:
    """What rules are learned from is not to depend on what is predicted, and of other frameworks nothing can be."""
    spec = WorkloadSpec.of_name("lenet5")
    case: Any = SimpleNamespace(spec=spec, python="python", batch_sizes=())
    variant = SimpleNamespace(spec=lambda each: each, pins=("tf32=on",), python="python")
    comparison: Any = SimpleNamespace(request=FrameworksRequest(workload=spec, margin=0.03, new=True), batch_size=8)
    of_suite = suite.search_request(case, SuiteRequest(seed=3, time_budget="1m"))
    of_framework = frameworks_job.search_request(comparison, SimpleNamespace(variant=variant), 12.4)  # type: ignore[arg-type]
    usual = SearchRequest(
        workload=spec, python="python", objective="throughput", predict=False, wait=True, instances=False
    )
    assert of_suite == replace(usual, seed=3, time_budget="1m")
    assert of_framework == replace(
        usual,
        time_budget="12s",
        batch_size="8",
        trial_timeout="5m",
        margin=0.03,
        new=True,
        numerics="may-change",
        pins=["tf32=on"],
    )


# ---- how right it was ------------------------------------------------------------------------------------------


def test_what_was_predicted_stands_beside_what_was_measured(space: Space) -> None:
    settings = [point for point in space.points if point.batch_size == 8][:6]
    gains = [0.0, 0.1, 0.2, 0.3, 0.25, -0.1]
    trials = [
        Trial(number=number, setting=setting, status=Status.OK, log_ratio=gain, se=0.01, df=8, reference=1)
        for number, (setting, gain) in enumerate(zip(settings, gains, strict=True))
    ]

    def ratio_of(each: Trial) -> dict[str, float | None]:
        return {"ratio": math.exp(gains[each.number]), "low": None, "high": None}

    prediction = Prediction(
        best=settings[3].to_dict(),
        best_log_ratio=0.4,
        n_before=0,
        log_ratios=tuple((number, 2 * gain) for number, gain in enumerate(gains)),
        trust=0.9,
    )
    result = expectation_of(prediction, trials, ratio_of)
    assert result is not None
    assert (result.predicted, result.ratio) == pytest.approx((math.exp(0.4), math.exp(0.3)))
    assert (result.rank_correlation, result.settings) == (pytest.approx(1.0), 6)
    few = expectation_of(prediction, trials[:4], ratio_of)
    assert few is not None
    assert few.rank_correlation is None
    assert expectation_of(None, trials, ratio_of) is None


def test_ranks_are_those_of_spearman() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        x, y = rng.integers(0, 6, 12).astype(float), rng.normal(size=12)
        assert rank_correlation(x, y) == pytest.approx(float(spearmanr(x, y).statistic))
    assert rank_correlation(np.ones(4), np.arange(4.0)) is None


def test_other_code_keeps_the_threads_of_its_matrix_products() -> None:
    def threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
    assert threads() == before
