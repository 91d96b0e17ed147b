"""What the runtime costs: the parts of a step, from traces that were recorded, made, and taken for real."""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console
from scipy.special import stdtrit

from tests.command_line import ROOT, tftune
from tuner.devices.cpu import DEVICE as CPU
from tuner.devices.nvidia import NvidiaGpu
from tuner.errors import BadInputError
from tuner.frameworks.framework import Part
from tuner.frameworks.tensorflow.child.operators import union
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.frameworks.tensorflow.timeline import Event, Timeline, call_ns, clipped, parts_of, timelines
from tuner.job.advise import situation_of
from tuner.job.job import prepare
from tuner.job.overhead import (
    Resized,
    known_overhead,
    known_overheads,
    measure_overhead,
    overhead_told,
    with_overhead,
)
from tuner.job.parsed import parse_request
from tuner.job.request import OverheadRequest, SearchRequest
from tuner.model.overhead import Share, hiding_batch, share_of
from tuner.quantity import percent
from tuner.report.model import overhead_chart as chart
from tuner.report.model import overhead_csv as as_csv
from tuner.report.model import overhead_page as rendered
from tuner.result.model import OverheadResult, search_line
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Execution

DATA = Path(__file__).parent / "data" / "timelines"
_LEAST_RUNS, _MOST_RUNS = 3, 8  # of a chain that is alone and not
CHAIN = '''"""Of one row tiny multiplications in a chain, of two rows a large one, of four rows both."""
ITEM = "row"
BATCH_SIZE = 1
def build():
    import tensorflow as tf
    small = tf.Variable(tf.eye(4))
    large = tf.Variable(tf.random.stateless_uniform((1600, 1600), (1, 2)))
    def model(x):
        y = x
        if x.shape[0] in (1, 4):
            for _ in range(200):
                y = tf.linalg.matmul(y, small)
        if x.shape[0] in (2, 4):
            y = y + tf.reduce_sum(tf.linalg.matmul(large, large))
        return y
    return model
def inputs(batch_size):
    import numpy as np
    return (np.ones((batch_size, 4), np.float32),)
'''
SMALL = '''"""One product, of few rows."""
ITEM = "row"
BATCH_SIZE = 1
def build():
    import tensorflow as tf
    w = tf.Variable(tf.ones((8, 8)))
    def model(x):
        tf.debugging.assert_less(tf.shape(x)[0], 4, "too many rows")
        return tf.linalg.matmul(x, w)
    return model
def inputs(batch_size):
    import numpy as np
    return (np.ones((batch_size, 8), np.float32),)
'''


def told_of(name: str) -> dict[str, Any]:
    """Return what a child told of LeNet-5 at batch size 8."""
    told: dict[str, Any] = json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    return told


def recorded(name: str) -> list[Timeline]:
    """Return steps of LeNet-5 at batch size 8, as a child told of them."""
    told = told_of(name)
    return [step for block in timelines(told, told["blocks"]) for step in block]


def made(duration: int, *events: tuple[str, int, int, str] | tuple[str, int, int, str, int]) -> Timeline:
    """Return a step of events: the line, begin, end, name, detail; a line of a GPU's begins with `gpu`."""
    lines = list(dict.fromkeys(event[0] for event in events))
    planes = [("/device:GPU:0" if line.startswith("gpu") else "/host:CPU", line) for line in lines]
    return Timeline(
        duration=duration,
        lines=planes,
        events=[
            Event(line=lines.index(line), begin=begin, end=end, name=name, detail=rest[0] if rest else None)
            for line, begin, end, name, *rest in events
        ],
    )


def in_ns(timeline: Timeline, **options: Any) -> dict[Part, int]:
    """Return the parts of a step that are there, in nanoseconds."""
    return {part: round(1e9 * s) for part, s in parts_of(timeline, **options).parts_s.items() if s > 0}


@pytest.mark.parametrize("name", ["eager", "graph", "xla"])
def test_the_parts_of_a_recorded_step_are_the_step(name: str) -> None:
    for step in recorded(name):
        parts = parts_of(step)
        assert parts.step_s == pytest.approx(step.duration * 1e-9)
        assert min(parts.parts_s.values()) >= 0
        assert parts.parts_s[Part.OPERATORS] > 0
        assert parts.parts_s[Part.COPIES] == 0  # no GPU


def test_recorded_operators_are_those_of_the_model() -> None:
    """LeNet-5 has three convolutions, two products and four tanh; fused in a graph, one by one in eager."""
    (eager, *_), (graph, *_), (xla, *_) = map(recorded, ("eager", "graph", "xla"))
    names = [event.name for event in graph.events]
    assert sum(name.endswith("FusedConv2D") for name in names) == 3
    assert len(parts_of(eager).operators_s) > 1.5 * len(parts_of(graph).operators_s)
    assert len(parts_of(xla).operators_s) > 5


def test_python_calls_eager_operators_and_a_graph_once() -> None:
    eager, graph = (overhead_told(told_of(name), FRAMEWORK, CPU) for name in ("eager", "graph"))
    assert eager.shares[Part.PYTHON] > 0.15
    assert eager.shares[Part.WAITING] == 0  # there is no graph to wait for
    assert graph.shares[Part.WAITING] > 0
    assert eager.exposed.estimate > graph.exposed.estimate
    for own in (eager, graph):
        assert own.exposed.estimate == pytest.approx(1 - own.shares[Part.OPERATORS])
        assert own.clock_error < 0.03
        assert own.profiler_cost == pytest.approx(1.0, abs=0.5)


def test_a_call_that_does_nothing_takes_microseconds_and_is_no_kernel() -> None:
    told = told_of("eager")
    [calls] = timelines(told, [told["calls"]])
    assert 1_000 < call_ns(calls) < 50_000
    step = recorded("eager")[0]
    assert parts_of(step, call_ns=call_ns(calls)).exposed > parts_of(step).exposed


def test_a_trace_without_kernels_is_none_of_a_gpu() -> None:
    with pytest.raises(BadInputError, match=r"saw no kernel on the GPU; .* it: NVIDIA calls .*NVGPUCTRPERM"):
        overhead_told(told_of("eager"), FRAMEWORK, NvidiaGpu())


def test_an_eager_operator_runs_where_its_kernel_does() -> None:
    step = made(
        100,
        ("python", 10, 60, "EagerExecute", 0),
        ("python", 12, 55, "EagerLocalExecute: MatMul"),
        ("python", 20, 50, "KernelAndDeviceOp::Run"),
        ("pool", 25, 45, "ThreadWork"),
    )
    assert in_ns(step) == {Part.OPERATORS: 30, Part.EXECUTOR: 20, Part.PYTHON: 50}
    assert in_ns(step, call_ns=8) == {Part.OPERATORS: 22, Part.EXECUTOR: 28, Part.PYTHON: 50}
    assert in_ns(step, call_ns=99) == {Part.EXECUTOR: 50, Part.PYTHON: 50}
    assert len(parts_of(step, call_ns=99).operators_s) == 1


def test_what_encloses_operators_is_none() -> None:
    """Earlier versions of TensorFlow tell of the kernel itself; a loop is no operator, what runs in it is."""
    seen = made(
        100,
        ("python", 10, 60, "EagerExecute", 0),
        ("python", 20, 50, "KernelAndDeviceFunc::Run"),
        ("python", 30, 45, "MatMul:MatMul"),
    )
    assert in_ns(seen, call_ns=call_ns([seen])) == {Part.OPERATORS: 15, Part.EXECUTOR: 35, Part.PYTHON: 50}
    loop = made(
        100,
        ("pool", 0, 100, "ExecutorState::Process"),
        ("pool", 10, 90, "loop:While"),
        ("pool", 20, 30, "loop/a:MatMul"),
        ("pool", 35, 80, "Iterator::Map"),
        ("pool", 40, 90, "outer:MapDefun"),
        ("pool", 50, 60, "inner:Relu"),
    )
    assert in_ns(loop) == {Part.OPERATORS: 20, Part.EXECUTOR: 80}


def test_a_caller_waits_for_its_graph_where_nobody_runs_it() -> None:
    step = made(
        100,
        ("python", 10, 90, "EagerExecute", 1),
        ("python", 15, 85, "KernelAndDeviceFunc::Run"),
        ("pool", 30, 70, "ExecutorState::Process"),
        ("pool", 32, 40, "dense/MatMul:MatMul"),
        ("pool", 45, 60, "dense_1/MatMul:_MklNativeFusedMatMul"),
        ("other", 50, 66, "side:Relu"),
        ("pool", 61, 64, "call:StatefulPartitionedCall"),
        ("other", 66, 69, "__inference_f_1:__inference_f_1"),
    )
    parts = parts_of(step)
    # Operators: 32-40, and 45-66 of two at once. The pool's thread is at work in 30-70, the caller waits in 15-85.
    assert in_ns(step) == {Part.OPERATORS: 29, Part.EXECUTOR: 11 + 10, Part.WAITING: 30, Part.PYTHON: 20}
    assert parts.exposed == pytest.approx(0.71)
    assert sorted(round(1e9 * s) for s in parts.operators_s) == [8, 15, 16]
    assert [round(1e9 * s) for s in parts.gaps_s] == [13, 5]
    assert parts.launch_ratio == pytest.approx(15 / 9)


def test_kernels_of_a_compiled_program_are_its_operators_and_an_opaque_one_is_one() -> None:
    call = (("python", 0, 90, "EagerExecute", 1), ("python", 10, 80, "CpuExecutable::ExecuteAsyncOnStream"))
    seen = made(
        100,
        *call,
        ("python", 20, 40, "fusion.1"),
        ("tf_Eigen/1", 50, 70, "dot.3"),
        ("python", 41, 79, "BlockUntilReady"),
    )
    assert in_ns(seen) == {Part.OPERATORS: 40, Part.WAITING: 18, Part.EXECUTOR: 32, Part.PYTHON: 10}
    # Of a kernel that is divided among threads the other threads tell of a task only.
    divided = made(100, *call, ("python", 20, 40, "dot.1"), ("tf_Eigen/1", 25, 60, "pool task"))
    assert in_ns(divided) == {Part.OPERATORS: 40, Part.EXECUTOR: 50, Part.PYTHON: 10}
    assert len(parts_of(divided).operators_s) == 1
    assert in_ns(made(100, *call)) == {Part.OPERATORS: 70, Part.EXECUTOR: 20, Part.PYTHON: 10}


def test_a_gpu_hides_what_the_host_does_meanwhile() -> None:
    step = made(
        100,
        ("python", 0, 40, "EagerExecute", 0),
        ("python", 5, 35, "KernelAndDeviceOp::Run"),
        ("python", 10, 15, "cuLaunchKernel", 7),
        ("python", 20, 25, "cuLaunchKernel", 8),
        ("gpu Stream #1", 30, 60, "gemm", 7),
        ("gpu Stream #1", 60, 70, "relu", 8),
        ("gpu Stream #2", 65, 80, "MemcpyD2H", 9),
    )
    parts = parts_of(step, on_gpu=True)
    assert in_ns(step, on_gpu=True) == {Part.OPERATORS: 40, Part.COPIES: 10, Part.EXECUTOR: 30, Part.PYTHON: 20}
    assert parts.exposed == pytest.approx(0.5)
    assert [round(1e9 * s) for s in parts.latencies_s] == [20, 40]
    assert [round(1e9 * s) for s in parts.gaps_s] == [10]


def test_what_lies_beyond_the_step_is_cut_off() -> None:
    assert clipped([(0, 5), (3, 12), (12, 20), (25, 30)], (4, 22)) == [(4, 5), (4, 12), (12, 20)]
    assert union([(0, 5), (3, 12), (14, 20)]) == 18
    assert union([]) == 0


def test_the_hiding_batch_has_the_ends_of_its_interval() -> None:
    curve = [
        (1, Share(estimate=0.6, low=0.5, high=0.7)),
        (8, Share(estimate=0.12, low=0.08, high=0.16)),
        (16, Share(estimate=0.09, low=0.06, high=0.12)),
        (32, Share(estimate=0.05, low=0.03, high=0.07)),
    ]
    hiding = hiding_batch(list(reversed(curve)))
    assert (hiding.estimate, hiding.low, hiding.high) == (16, 8, 32)
    never = hiding_batch(curve[:1])
    assert (never.estimate, never.low, never.high) == (None, None, None)
    # One that is above again hides nothing before.
    again = hiding_batch([*curve[:3], (32, Share(estimate=0.11, low=0.09, high=0.13))])
    assert (again.estimate, again.low, again.high) == (None, 8, None)
    # From a single block nothing is certain.
    alone = hiding_batch([(4, Share(estimate=0.02))])
    assert (alone.estimate, alone.low, alone.high) == (4, 4, None)


def test_a_share_has_student_s_interval() -> None:
    share = share_of([0.2, 0.3, 0.4])
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (share.estimate, share.low, share.high) == pytest.approx((0.3, 0.3 - half, 0.3 + half), rel=1e-5)
    assert share_of([0.5]) == Share(estimate=0.5)
    assert share_of([0.0, 0.01]).low == 0.0


def test_a_process_is_stopped_whenever_it_is_not_asked_and_warms_up_once_for_each_batch_size() -> None:
    diary: list[str] = []

    def facts(step_s: float) -> SimpleNamespace:
        diary.append(f"warm with {step_s} s")
        return SimpleNamespace(step_s=step_s)

    process = SimpleNamespace(
        ready=lambda: facts(0.1),
        set_batch_size=lambda batch_size: facts(0.1 * batch_size),
        resume=lambda: diary.append("resume"),
        pause=lambda: diary.append("pause"),
        slice=lambda duration_s: diary.append(f"slice of {duration_s} s"),
    )
    own = Resized(process=process, batch_size=1)  # type: ignore[arg-type]
    assert own.at(1).at(1).step_s == 0.1
    assert own.at(4).step_s == 0.4
    own.run_alone(2, 0.5)
    assert diary[:2] == ["warm with 0.1 s", "pause"]
    assert diary[2:5] == ["resume", "warm with 0.4 s", "pause"]
    assert diary[5:] == ["resume", "slice of 0.5 s", "slice of 0.5 s", "pause"]


class Told:
    """What is told, kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waiting = self.notice = self.progress = self.lines.append


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batches": "8..1"}, "--batch-size is '8..1'"),
        ({"executions": ["fast"]}, "unknown execution 'fast'"),
        ({"time_budget": "soon"}, "--time-budget is 'soon'"),
        ({"workload": WorkloadSpec(words=("true",), metric_regex="([0-9]+)")}, "commands cannot be traced"),
        ({"workload": replace(WorkloadSpec.of_name("lenet5"), rate=5.0)}, "steps are looked into without requests"),
        ({"workload": WorkloadSpec.of_name("lenet5+mlp")}, "an ensemble has several models"),
        ({"workload": WorkloadSpec.of_name("lenet5", framework="onnxruntime")}, "shows none of its operators"),
        ({"workload": WorkloadSpec.of_name("no-such-model")}, "unknown workload"),
    ],
)
@pytest.mark.tensorflow
def test_what_cannot_be_looked_into_is_refused(changes: dict[str, Any], message: str) -> None:
    request = replace(OverheadRequest(workload=WorkloadSpec.of_name("lenet5")), **changes)
    with pytest.raises(BadInputError) as refused:
        measure_overhead(request, Told())
    assert message in refused.value.message


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_an_execution_that_the_model_does_not_have_is_left_out_and_refused_by_name(tmp_path: Path) -> None:
    job = prepare(parse_request(SearchRequest(workload=WorkloadSpec.of_name("lenet5")), stores=False))
    [exported] = job.export()
    shutil.copytree(exported, tmp_path / "lenet5")
    spec = WorkloadSpec.of_name(str(tmp_path / "lenet5"))
    with pytest.raises(BadInputError, match="eager does not work for a SavedModel"):
        measure_overhead(OverheadRequest(workload=spec, executions=["eager"]), Told())
    told = Told()
    measured = measure_overhead(OverheadRequest(workload=spec, batches="1", executions=[]), told)
    assert list(measured.hiding_batch) == [Execution.GRAPH, Execution.XLA]
    assert any("eager" in line for line in told.lines)
    assert all(row.exposed_overhead is not None for row in measured.rows)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_an_execution_ends_where_a_batch_fails_and_where_no_time_is_left(tmp_path: Path) -> None:
    """The first batch size is owed; what was measured is kept for searches of the same workload."""
    (tmp_path / "small.py").write_text(SMALL)
    spec = WorkloadSpec.of_name(str(tmp_path / "small.py"))
    told = Told()
    request = OverheadRequest(workload=spec, executions=["graph"], batches="1,2,4,8")
    result = measure_overhead(request, told)
    assert [(row.batch_size, row.status) for row in result.rows] == [(1, "ok"), (2, "ok"), (4, "failed")]
    assert "too many rows" in result.rows[-1].message
    assert result.hiding_batch[Execution.GRAPH].low in (None, 1, 2)
    told = Told()
    result = measure_overhead(replace(request, batches="1,2", time_budget="1s"), told)
    assert [row.batch_size for row in result.rows] == [1]
    begins, ends = (told.lines.index(line) for line in told.lines if re.match("graph, batch size 1;|  exposed", line))
    assert begins < ends
    assert any("stopped before batch size 2" in line for line in told.lines)
    job = prepare(parse_request(SearchRequest(workload=spec, batch_size="2"), stores=False))
    known = known_overhead(job, known_overheads(job))  # the second time left the other rows of the first
    assert known is not None
    assert (known.execution, known.batch_size) == (Execution.GRAPH, 2)
    features = with_overhead(job.features(), known)
    assert features is not None
    assert features.exposed_overhead == known.exposed_overhead
    situation = situation_of(job, features)
    assert situation is not None
    assert situation.values()["exposed_overhead"] == known.exposed_overhead
    unknown = replace(situation, features=replace(features, exposed_overhead=None))
    assert math.isnan(unknown.values()["exposed_overhead"])
    with pytest.raises(BadInputError, match=r"no step could be looked into: .*too many rows"):
        measure_overhead(replace(request, batches="8"), Told())


def profiled_s(row: dict[str, Any]) -> float:
    """Return the time of a step with the profiler, which costs a chain of small operators more than a large one."""
    step_s: float = row["step_s"] * row["profiler_cost"]
    return step_s


@pytest.mark.tensorflow
@pytest.mark.alone
def test_overhead_that_is_known_is_seen(tmp_path: Path) -> None:
    """A chain of tiny products alone, a large one alone, and both: what the chain exposes is hidden as expected.

    Each is a process of its own, and a shared machine can be half as fast for one of them. So runs are repeated until
    the mean difference is known to 0.05, and what is left of their scatter is part of what is allowed.
    """
    (tmp_path / "chain.py").write_text(CHAIN)
    words = ["overhead", "./chain.py", "--batch-size", "1,2,4", "--execution", "eager", "--json"]
    differences: list[float] = []
    scatter = math.inf  # of their mean: half of its interval at 95 %
    while len(differences) < _MOST_RUNS and scatter > 0.05:
        ended = tftune(*words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        tiny, large, both = json.loads(ended.stdout)["rows"]
        for row in (tiny, large, both):
            assert sum(row["parts"].values()) == pytest.approx(1.0)
            assert row["clock_error"] < 0.03, percent(row["clock_error"])
        exposed_s = sum(row["exposed_overhead"] * profiled_s(row) for row in (tiny, large))
        expected = exposed_s / (profiled_s(tiny) + profiled_s(large))
        differences.append(both["exposed_overhead"] - expected)
        assert tiny["exposed_overhead"] > 0.5 > 0.1 > large["exposed_overhead"]
        assert tiny["operators"] >= 200
        if len(differences) >= _LEAST_RUNS:
            n = len(differences)
            scatter = float(stdtrit(n - 1, 0.975)) * statistics.stdev(differences) / math.sqrt(n)
    assert abs(statistics.mean(differences)) <= 0.05 + scatter, differences
    job = prepare(parse_request(SearchRequest(workload=WorkloadSpec.of_name(str(tmp_path / "chain.py"))), stores=False))
    assert known_overhead(job, known_overheads(job)) is None  # that was eager


def test_a_search_says_what_helps_more_than_threads() -> None:
    result = stored("lenet5")
    first = {row.execution: row for row in result.rows if row.batch_size == 1}
    graph = first[Execution.GRAPH]
    hidden = msgspec.structs.replace(graph, exposed_overhead=0.05)
    assert search_line(hidden, result.rows) == "5 % of a step at batch size 1 is exposed overhead of the runtime"
    alone = search_line(msgspec.structs.replace(graph, exposed_overhead=0.4), [])
    assert alone.startswith("40 % of a step at batch size 1 is exposed overhead of the runtime, which more threads")
    assert alone.endswith("a larger batch may")
    later = msgspec.structs.replace(graph, batch_size=64, exposed_overhead=0.06)
    assert "batch size 64 brings it below 10 %" in search_line(graph, [graph, later])
    # LeNet-5 is many times as fast as a graph as it is eager, as measured.
    eager = search_line(first[Execution.EAGER], result.rows)
    assert re.search(r"--execution (graph|xla) is [0-9.]+ times as fast", eager)


def test_a_result_is_shown_as_tables_csv_and_chart() -> None:
    result = stored("lenet5")
    text = io.StringIO()
    Console(file=text, width=200).print(*rendered(result))
    for execution in result.hiding_batch:
        assert execution.value in text.getvalue()
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert len(rows) == len(result.rows)
    assert {row["execution"] for row in rows} == {"graph", "eager", "xla"}
    shares = [sum(float(row[f"{part}_share"]) for part in Part) for row in rows if row["status"] == "ok"]
    assert shares == pytest.approx([1.0] * len(shares))
    drawn = chart(result)
    assert drawn is not None
    assert drawn.count("eager") == 1


def stored(model: str) -> OverheadResult:
    """Return a result that was measured and is published."""
    path = ROOT / "results" / "overhead" / model / "overhead.json"
    return msgspec.json.decode(path.read_bytes(), type=OverheadResult)
