"""Profiles: the law of scaling, the roof, what is worth another doubling; and for real, operators that are known."""

from __future__ import annotations

import csv
import io
import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from tests.command_line import tftune
from tests.conftest import Call
from tests.frameworks import subject
from tuner.errors import BadInputError, TunerError
from tuner.frameworks.tensorflow.child.operators import union
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.profile import thread_counts, trace, trace_quickly, trace_sizes
from tuner.job.request import SearchRequest
from tuner.job.servers import Servers
from tuner.model.profile import Bound, Profile, Roof, Scaling, Traced, bound, fit, is_worth_more, plain, profile
from tuner.report.model import profile_csv as as_csv
from tuner.report.model import profile_page as rendered
from tuner.report.model import roofline
from tuner.result.model import ProfileResult, describe_profile
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure
from tuner.trial.process import ChildProcess
from tuner.workload.spec import WorkloadSpec

ROOF = Roof(flops=1e11, bytes_s=1e10)
N = 1024


# ---- the law --------------------------------------------------------------------------------------------------


def test_amdahl_is_the_limit_without_coherency() -> None:
    law = fit({n: 0.1 + 0.9 / n for n in (1, 2, 4, 8)})
    assert (law.contention, law.coherency) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))
    assert law.error is not None
    assert law.error < 1e-9
    assert law.time_s(1e9) == pytest.approx(0.1, rel=1e-6)
    assert law.best_threads(64) == 46  # 64 would save less than 5 %


@given(st.floats(0, 1), st.floats(1e-4, 0.1), st.floats(1e-6, 10))
def test_the_law_is_found_again(contention: float, coherency: float, one_s: float) -> None:
    true = Scaling(one_s=one_s, contention=contention, coherency=coherency)
    law = fit({n: true.time_s(n) for n in (1, 2, 4, 8, 16)})
    assert law.contention == pytest.approx(contention, abs=1e-6)
    assert law.coherency == pytest.approx(coherency, abs=1e-6)
    least_s = min(map(true.time_s, range(1, 65)))
    best = law.best_threads(64)
    assert true.time_s(best) <= 1.0501 * least_s
    assert best == 1 or true.time_s(best - 1) > 1.0499 * least_s


def test_of_one_count_nothing_is_known_and_of_two_no_coherency() -> None:
    alone = fit({1: 2.0})
    assert (alone.time_s(8), alone.best_threads(8)) == (2.0, 1)
    assert fit({1: 2.0, 2: 1.0}).contention == pytest.approx(0.0)
    assert fit({1: 2.0, 2: 1.0}).error is None  # it fits whatever there is
    assert fit({1: 2.0, 2: 3.0}).contention == pytest.approx(2.0)  # it gets worse
    assert fit({1: 0.0, 2: 1.0}).time_s(2) == 0.0
    with pytest.raises(ValueError, match="one thread"):
        fit({2: 1.0})


# ---- the profile ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("_FusedConv2D", "Conv2D"),
        ("_MklNativeFusedConv2D", "Conv2D"),
        ("_MklNativeConv2D", "Conv2D"),
        ("_MklNativePadWithFusedConv2D", "Conv2D"),
        ("_FusedMatMul", "MatMul"),
        ("_MklNativeConv2DBackpropFilterWithBias", "Conv2DBackpropFilter"),
        ("Conv2DBackpropFilter", "Conv2DBackpropFilter"),
        ("_MklFusedBatchMatMulV2", "BatchMatMulV2"),
        ("Relu", "Relu"),
        ("_Retval", "_Retval"),
    ],
)
def test_what_is_rewritten_is_the_operator_that_it_was(op: str, kind: str) -> None:
    assert plain(op) == kind


@pytest.mark.parametrize(
    ("time_s", "flops", "n_bytes", "expected"),
    [
        (1.0, 9e10, 1e8, Bound.COMPUTE),
        (1.0, 1e9, 9e9, Bound.MEMORY),
        (1.0, 9e9, 9e8, Bound.OVERHEAD),  # the roof explains less than a tenth
        (1.0, 0, 0, Bound.OVERHEAD),
    ],
)
def test_an_operator_is_bound_by_what_its_roof_is_made_of(
    time_s: float, flops: int, n_bytes: int, expected: Bound
) -> None:
    assert bound(time_s, flops, n_bytes, ROOF) is expected


def node(name: str, op: str, inputs: list[int], shape: list[int], time_s: float, runs: int = 1) -> list[Any]:
    return [name, op, [[i, 0] for i in inputs], [["float32", shape]], {}, runs, time_s]


def traced(threads: int, speed: float, **changes: Any) -> Traced:
    """Return what a process told: a product that gets faster with threads, and a sum that does not."""
    nodes = [
        node("x", "_Arg", [], [N, N], 0.0),
        node("w", "Const", [], [N, N], 0.0),
        node("product", "_FusedMatMul", [0, 1], [N, N], 0.04 / speed, runs=2),
        node("sum", "AddV2", [2, 0], [N, N], 0.004),
    ]
    busy_s = 0.04 / speed + 0.004
    fields = {
        "threads": threads,
        "step_s": busy_s + 0.001,
        "plain_s": busy_s + 0.001,
        "traced_s": busy_s + 0.002,
        "busy_s": busy_s,
    }
    return Traced(**(fields | {"roof": ROOF, "nodes": nodes} | changes))


@pytest.fixture
def measured() -> Profile:
    return profile([traced(1, 1.0), traced(2, 1.9), traced(4, 3.0)])


def test_operators_have_their_work_and_their_law(measured: Profile) -> None:
    product = measured.operators[2]
    assert (product.flops, product.n_bytes) == (2 * 2 * N**3, 2 * 3 * 4 * N**2)  # it runs twice
    assert (product.bound, measured.operators[3].bound) == (Bound.COMPUTE, Bound.MEMORY)
    assert product.inputs == (0, 1)
    assert product.times_s == {1: 0.04, 2: pytest.approx(0.04 / 1.9), 4: pytest.approx(0.04 / 3)}
    assert product.scaling.error is None  # three times, two coefficients and t(1)
    assert measured.operators[3].scaling.contention == pytest.approx(1.0)
    assert measured.between_shares == (pytest.approx(0.001 / 0.045), pytest.approx(0.002 / 0.046))


def test_parts_and_what_is_between_are_the_step(measured: Profile) -> None:
    one = measured.traced[0]
    parts_s = sum(each.times_s[1] for each in measured.operators)
    assert parts_s + measured.between_shares[0] * one.plain_s == pytest.approx(one.plain_s, rel=1e-9)


@pytest.mark.parametrize(
    ("exposed", "share"), [(None, (1 / 45 + 2 / 46) / 2), (0.03, 0.03), (0.5, 2 / 46), (0.0, 1 / 45)]
)
def test_the_exposed_overhead_is_what_is_between_operators(exposed: float | None, share: float) -> None:
    one = replace(traced(1, 1.0), exposed=exposed)
    assert profile([one]).between_s == pytest.approx(one.step_s * share)


def test_a_step_with_statistics_that_noise_shortens_leaves_one_share() -> None:
    one = replace(traced(1, 1.0), traced_s=0.0445)
    assert one.between_shares == (pytest.approx(1 / 89), pytest.approx(1 / 89))
    assert one.bounded(0.5) == pytest.approx(1 / 89)


def test_a_profiler_that_fails_takes_nothing_from_the_profile() -> None:
    """A process ends with its first failure, so that its profiler is the last to be asked."""
    asked: list[str] = []

    class Ending:
        def operators(self, n_steps: int, batch_size: int) -> dict[str, Any]:
            asked.append(f"operators at {batch_size}")
            own = traced(1, 1.0)
            return {
                "plain_s": [own.plain_s] * n_steps, "steps_s": [own.traced_s] * n_steps, "busy_s": [own.busy_s],
                "roof": {"flops": ROOF.flops, "bytes_s": ROOF.bytes_s}, "nodes": own.nodes,
            }  # fmt: skip

        def timeline(self, *_: int) -> dict[str, Any]:
            asked.append("timeline")
            raise TrialFailure(Status.FAILED, "the profiler kept no step")

    row = trace_sizes(None, Ending(), 1, {1: 0.045, 8: 0.045})  # type: ignore[arg-type]
    assert asked == ["operators at 1", "operators at 8", "timeline"]
    assert {size: each.exposed for size, each in row.items()} == {1: None, 8: None}


def test_threads_are_doubled_while_some_operator_gains() -> None:
    assert is_worth_more([])
    assert is_worth_more([traced(1, 1.0)])
    assert is_worth_more([traced(1, 1.0), traced(2, 1.9)])
    assert not is_worth_more([traced(1, 1.0), traced(2, 1.9), traced(4, 1.9)])
    assert not is_worth_more([traced(1, 1.0), traced(2, 0.8)])


def test_a_profile_needs_one_thread_and_the_same_operators() -> None:
    with pytest.raises(ValueError, match="a first process of one thread"):
        profile([traced(2, 1.0)])
    # Another branch in another process: what ran in the first is told, as far as it ran in the others.
    other = replace(traced(2, 1.9), nodes=[node("other", "Relu", [], [1], 0.1)])
    assert profile([traced(1, 1.0), other]).operators[2].times_s == {1: 0.04}


def test_a_step_that_was_disturbed_counts_as_a_fifth_longer_than_in_its_session() -> None:
    def steps_s(*steps: tuple[float, float]) -> list[float]:
        rows = [replace(traced(n, 1.0), step_s=step_s, plain_s=plain_s) for n, (step_s, plain_s) in enumerate(steps, 1)]
        return [each.step_s for each in profile(rows).traced]

    assert steps_s((0.057, 0.057), (0.053, 0.035)) == pytest.approx([0.057, 0.042])
    assert steps_s((0.057, 0.057), (0.040, 0.035)) == [0.057, 0.040]
    # Where a session leaves something out that a step does, it does so in all processes.
    assert steps_s((0.013, 0.010), (0.0075, 0.005)) == [0.013, 0.0075]
    assert steps_s((0.013, 0.010), (0.008, 0.005), (0.0055, 0.0025)) == [0.013, 0.008, 0.0055]
    assert steps_s((0.050, 0.010)) == [0.050]  # nothing to compare with


def test_what_a_node_takes_is_the_output_that_it_names() -> None:
    split = ["split", "Split", [], [["float32", [4]], ["float32", [N, 8]]], {}, 1, 0.1]
    product = ["product", "MatMul", [[0, 1], [1, 0]], [["float32", [N, 2]]], {}, 1, 0.1]
    unknown = ["unknown", "_MklNativeConv2DWithBias", [[-1, 0], [-1, 0]], [["float32", [2, 2]]], {}, 1, 0.1]
    update = ["update", "ResourceApplyGradientDescent", [[0, 0], [0, 0], [2, 0]], [], {}, 1, 0.1]
    nodes = [split, ["w", "Const", [], [["float32", [8, 2]]], {}, 1, 0.0], product, unknown, update]
    operators = profile([traced(1, 1.0, nodes=nodes)]).operators
    assert operators[2].flops == 2 * N * 2 * 8
    assert (operators[3].inputs, operators[3].n_bytes) == ((), 16)  # what it takes is not known
    assert (operators[4].flops, operators[4].n_bytes) == (2 * N * 2, 3 * 4 * N * 2)


@pytest.mark.parametrize(("cpus", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (24, [1, 2, 4, 8, 16, 24])])
def test_threads_double_up_to_all_cpus(cpus: int, counts: list[int]) -> None:
    assert thread_counts(cpus) == counts


def shown(result: ProfileResult) -> str:
    """Return what the terminal shows of a profile."""
    return "\n".join(part.plain for part in rendered(result, top=3) if isinstance(part, Text))


def test_what_is_published_has_the_words_of_the_field(measured: Profile, space: Space) -> None:
    result = describe_profile(measured, subject(space), batch_size=8)
    assert [each.name for each in result.operators] == ["product", "sum"]
    assert sum(each.share for each in result.operators) == pytest.approx(1.0)
    assert result.threads[0].profiler_cost == pytest.approx(0.046 / 0.045)
    assert result.exposed_overhead is None
    assert "between operators: 2 % to 4 % of a step" in shown(result)
    first, *more = measured.traced
    asked = describe_profile(profile([replace(first, exposed=0.03), *more]), subject(space), batch_size=8)
    assert "between operators: 2 % to 4 %, 3 % by TensorFlow's profiler, of a step" in shown(asked)
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert [(row["type"], row["class"]) for row in rows] == [("_FusedMatMul", "compute"), ("AddV2", "memory")]
    assert float(rows[0]["time_s_2"]) == pytest.approx(0.04 / 1.9)
    assert roofline(result).startswith("<svg")


@pytest.mark.parametrize(
    ("spans", "total"), [([], 0), ([(0, 5), (3, 8)], 8), ([(10, 20), (0, 5)], 15), ([(0, 9), (2, 3)], 9)]
)
def test_what_overlaps_counts_once(spans: list[tuple[int, int]], total: int) -> None:
    assert union([(1000 + begin, 1000 + end) for begin, end in spans]) == total


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--framework", "onnxruntime"], "ONNX Runtime shows none of its operators"),
        (["--execution", "eager"], "--execution eager has no graph of operators"),
        (["--batch-size", "0"], "--batch-size is '0'; expected one whole number of at least 1"),
    ],
)
def test_what_has_no_operators_is_one_line(call: Call, words: list[str], message: str) -> None:
    code, out, err = call("profile", "lenet5", *words)
    assert (code, out) == (2, "")
    assert message in err


CHAIN = """
'''A chain of small products, and one large product.'''
ITEM, BATCH_SIZE = "row", 1024
def build():
    import tensorflow as tf
    small = [tf.constant(tf.random.stateless_normal((64, 64), (i, 2)) / 8) for i in range(40)]
    large = tf.constant(tf.random.stateless_normal((2048, 2048), (1, 2)) / 45)
    def call(x):
        y = tf.tile(x[:64, :64], (1, 1))
        for w in small:
            y = tf.tanh(y @ w)
        return x @ large + tf.reduce_sum(y)
    return call
def inputs(batch_size):
    import numpy as np
    return (np.random.default_rng(0).random((batch_size, 2048), np.float32),)
"""


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
@pytest.mark.parametrize("n_held", [1, 2])
def test_a_profile_has_no_more_processes_than_memory_holds(
    n_held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    spec = WorkloadSpec(words=(str(tmp_path / "chain.py"),))
    job = prepare(parse_request(SearchRequest(workload=spec, batch_size="8"), stores=False))
    live: set[int] = set()
    most: list[int] = []
    real_ready, real_close = ChildProcess.ready, ChildProcess.close

    def ready(self: ChildProcess) -> ReadyReport:
        live.add(self.pid)
        most.append(len(live))
        if len(live) > n_held:
            raise TrialFailure(Status.OOM, "the kernel killed the process because memory ran out")
        return real_ready(self)

    def close(self: ChildProcess) -> object:
        live.discard(self.pid)
        return real_close(self)

    monkeypatch.setattr(ChildProcess, "ready", ready)
    monkeypatch.setattr(ChildProcess, "close", close)
    notices: list[str] = []
    told: list[object] = []
    repeats: list[int] = []
    events = SimpleNamespace(
        notice=notices.append,
        began=told.append,
        ended=lambda traced: told.append(traced.threads),
        repeats=lambda: repeats.append(len(live)),
    )
    rows = trace(job, [1, 8], events=events)  # type: ignore[arg-type]
    all_counts = thread_counts(job.machine.usable_cpus)
    counts = [each.threads for each in rows[8]]
    assert [each.threads for each in rows[1]] == counts
    assert counts == sorted(counts)
    assert counts[:2] == ([1] if n_held == 1 else all_counts[:2])
    assert len(counts) <= 2 or counts[-1] == all_counts[-1]
    refused = [each for each in notices if "no more than 1 thread: the kernel killed" in each]
    # Two threads come first, and all before those between.
    order = [*all_counts[1:2], 1, *counts[2:][-1:], *counts[2:-1]]
    if n_held == 1 and len(all_counts) > 1:
        assert told == [2, 1, 1]
        assert len(refused) == 1
        assert not repeats
    else:
        assert told == [n for n in order for _ in ("began", "ended")]
        assert not refused
    assert max(most) == min(n_held + 1, 3, len(all_counts))  # one more is tried
    assert len(repeats) <= 2
    if len(all_counts) == 2:
        assert not any(repeats)  # nothing else runs meanwhile
    assert not live


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_all_threads_come_before_those_between_and_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were eight CPUs, and memory for no process with as many threads."""
    (tmp_path / "chain.py").write_text(CHAIN)
    spec = WorkloadSpec(words=(str(tmp_path / "chain.py"),))
    job = prepare(parse_request(SearchRequest(workload=spec, batch_size="8"), stores=False))
    monkeypatch.setattr("tuner.job.profile.thread_counts", lambda _: [1, 2, 4, 8])
    monkeypatch.setattr("tuner.job.profile.is_worth_more", lambda _: True)
    real_launch, real_ready = FreshLauncher.launch_one, ChildProcess.ready
    too_large: set[int] = set()

    def launch_one(self: FreshLauncher, setting: Setting, deployment: Deployment) -> ChildProcess:
        process = real_launch(self, setting, deployment)
        if setting.to_dict()["intra_op"] == 8:
            too_large.add(process.pid)
        return process

    def ready(self: ChildProcess) -> ReadyReport:
        if self.pid in too_large:
            raise TrialFailure(Status.OOM, "the kernel killed the process because memory ran out")
        return real_ready(self)

    monkeypatch.setattr(FreshLauncher, "launch_one", launch_one)
    monkeypatch.setattr(ChildProcess, "ready", ready)
    told: list[object] = []
    events = SimpleNamespace(
        notice=told.append, began=lambda _: None, ended=lambda traced: told.append(traced.threads), repeats=lambda: None
    )
    rows = trace(job, [8], events=events)  # type: ignore[arg-type]
    assert told == [2, 1, "not with 8 threads: the kernel killed the process because memory ran out", 4]
    assert [each.threads for each in rows[8]] == [1, 2, 4]


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_quick_profile_has_one_thread_and_all_and_ends_where_it_would_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    spec = WorkloadSpec(words=(str(tmp_path / "chain.py"),))
    job = prepare(parse_request(SearchRequest(workload=spec, batch_size="8"), stores=False))
    job.export()
    told: list[object] = []
    events = SimpleNamespace(began=told.append, ended=lambda traced: told.append(traced.threads))
    with Servers(job, notify=told.append) as servers:
        forks = servers.search_launcher()
        assert forks is not None
        quickly = partial(trace_quickly, job, [1, 8], launcher=forks, events=events)
        rows = quickly(limit_s=60.0)
        ends = sorted({1, job.machine.usable_cpus})
        assert {size: [each.threads for each in row] for size, row in rows.items()} == {1: ends, 8: ends}
        assert told == [n for n in ends for _ in ("began", "ended")]
        for row in rows.values():
            assert all(each.step_s == each.plain_s > 0 and each.exposed is None for each in row)
            assert profile(row).operators
        monkeypatch.setattr(ReadyReport, "step_s", 10.0)
        with pytest.raises(TunerError, match=r"a quick profile would take \d+ s, more than a tenth of the time"):
            quickly(limit_s=60.0)
        monkeypatch.undo()
        with pytest.raises(BadInputError, match=r"a step cannot be profiled: no answer within 0\.01 s"):
            quickly(limit_s=0.01)


@pytest.mark.alone
@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_session_runs_what_a_function_runs_and_a_product_reaches_the_roof(tmp_path: Path) -> None:
    """Functions and sessions alternate, as the machine changes. Its speed may change by 40 % between product and roof.

    So the medians over three processes are compared: each process measures its roof once.
    """
    (tmp_path / "chain.py").write_text(CHAIN)
    spec = WorkloadSpec(words=(str(tmp_path / "chain.py"),))
    job = prepare(parse_request(SearchRequest(workload=spec), stores=False))
    job.export()
    one = job.space.reference.with_values(inter_op=1, intra_op=1)
    ratios, product_flops, roof_flops = [], [], []
    for _ in range(3):
        with closing(FreshLauncher(target=job.target()).launch(one, job.space.deployment(one))) as process:
            process.ready()
            for _ in range(3):
                function_s = median(process.slice(0.3).step_s)
                told = process.operators(3, 1024)
                ratios.append(median(told["plain_s"]) / function_s)
                product_s = max(node[7] for node in told["nodes"] if "MatMul" in node[1])
                product_flops.append(2 * 1024 * 2048 * 2048 / product_s)
        roof_flops.append(told["roof"]["flops"])
    assert median(ratios) == pytest.approx(1, abs=0.25)
    assert 0.5 < median(product_flops) / median(roof_flops) < 1.3


@pytest.mark.alone
@pytest.mark.tensorflow
def test_operators_that_are_known_are_seen(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    ended = tftune("profile", "chain.py", "--json", "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    products = [each for each in document["operators"] if "MatMul" in each["type"]]
    large = max(products, key=lambda each: each["flops"])
    assert large["flops"] == 2 * 1024 * 2048 * 2048
    assert large["class"] == "compute"
    assert large["share"] > 0.8
    assert sum(each["flops"] == 2 * 64**3 for each in products) == 40
    first = document["threads"][0]
    # One at a time: the operators and what is between them are the step, and few of them overlap.
    total_s = sum(each["time_s"]["1"] for each in document["operators"])
    assert total_s == pytest.approx(first["busy_s"], rel=0.1)
    assert first["busy_s"] <= first["traced_s"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"profile.json", "operators.csv", "roofline.svg"}
    low, high = document["between_share"]
    assert 0 <= low <= high < 1
