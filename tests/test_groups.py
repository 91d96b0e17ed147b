"""Groups: several processes behind the protocol of one; with made members, and with real ones."""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import convert

from tests.frameworks import WAYS
from tests.processes import gone, wait_until
from tuner.errors import BadInputError
from tuner.job.compare import items_per_step, parse_compared
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.measure.objective import Waking
from tuner.measure.passes import waking
from tuner.plain import to_plain
from tuner.report.emit import Format, emit
from tuner.result.study import Applied, applied
from tuner.space.deployment import Deployment
from tuner.trial import group
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, Status, TrialFailure, combined
from tuner.trial.process import ChildProcess
from tuner.workload.spec import WorkloadSpec


def a_slice(n_steps: int, step_s: float, *, resumed: bool = False) -> Slice:
    """Return a slice of equal steps."""
    return Slice(
        start_s=1.0, elapsed_s=n_steps * step_s, n_steps=n_steps, step_s=(step_s,) * n_steps, resumed=int(resumed)
    )


@dataclass
class Made:
    """A member that says what it was asked for."""

    step_s: float
    memory_bytes: int | None = 100
    fails: Status | None = None
    log: list[str] = field(default_factory=list)

    @property
    def peak_memory_bytes(self) -> int | None:
        return self.memory_bytes

    def facts(self) -> ReadyReport:
        return ReadyReport(
            import_s=self.step_s,
            context_s=0.1,
            load_s=0.1,
            first_step_s=0.1,
            warm_up=a_slice(2, self.step_s),
            effective={"step_s": self.step_s},
            memory_bytes=self.memory_bytes,
            settled=True,
        )

    def ready(self) -> ReadyReport:
        if self.fails is not None:
            raise TrialFailure(self.fails, "no more", hint="less")
        return self.facts()

    def start_batch(self, batch_size: int) -> None:
        self.log.append(f"begin batch {batch_size}")

    def end_batch(self) -> ReadyReport:
        self.log.append("end batch")
        return self.facts()

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        raise AssertionError("the others would wait")

    def start_slice(self, duration_s: float) -> None:
        self.log.append(f"begin {duration_s}")

    def end_slice(self) -> Slice:
        self.log.append("end")
        return a_slice(4, self.step_s)

    def slice(self, duration_s: float) -> Slice:
        raise AssertionError("the others would wait")

    def pause(self) -> None:
        self.log.append("pause")

    def resume(self) -> None:
        self.log.append("resume")

    def close(self) -> ExitStatus:
        self.log.append("close")
        return ExitStatus(returncode=0 if self.fails is None else 1, peak_memory_bytes=self.memory_bytes)


def test_the_rate_of_a_group_is_the_sum_of_its_members() -> None:
    members = [Made(0.1), Made(0.2)]
    both = group.Group(members)
    facts = both.ready()
    assert facts.import_s == 0.2  # the longest
    assert facts.memory_bytes == both.peak_memory_bytes == 200
    assert facts.effective == {"step_s": 0.1}
    ran = both.slice(0.5)
    assert ran.n_steps / ran.elapsed_s == pytest.approx(1 / 0.1 + 1 / 0.2)
    assert sorted(ran.step_s) == [0.1] * 4 + [0.2] * 4
    both.set_batch_size(16)
    both.pause()
    both.resume()
    assert both.close() == ExitStatus(returncode=0, peak_memory_bytes=200)
    expected_calls = ["begin 0.5", "end", "begin batch 16", "end batch", "pause", "resume", "close"]
    assert [member.log for member in members] == [expected_calls, expected_calls]


def test_the_first_step_of_each_member_after_a_pause_counts_less_what_waking_costs() -> None:
    slow = Slice(start_s=0.0, elapsed_s=1.4, n_steps=5, step_s=(1.0, 0.1, 0.1, 0.1, 0.1), resumed=1)
    ran = combined([slow, slow])
    assert ran.counted_steps == (8, pytest.approx(0.4))
    assert ran.resumed == 2
    assert convert(to_plain(ran), Slice).resumed == 2
    costs = waking([ran])
    assert costs.step_s(ran) == pytest.approx(costs.step_s(slow) / 2)  # as a process alone, and two at once


@pytest.mark.parametrize("n_steps", [1, 2, 5])
@pytest.mark.parametrize("n", [2, 16])
def test_what_waking_costs_is_the_same_for_one_process_and_for_several(n: int, n_steps: int) -> None:
    def woken(n_steps: int) -> Slice:
        step_s = (0.3 + 0.01 + 0.03 * 0.3, *[0.3] * (n_steps - 1))
        return Slice(start_s=0.0, elapsed_s=sum(step_s), n_steps=n_steps, step_s=step_s, resumed=1)

    costs = Waking(constant_s=0.01, share=0.03)
    assert costs.step_s(combined([woken(n_steps)] * n)) == pytest.approx(0.3 / n)
    quick = replace(woken(5), elapsed_s=0.5 + 0.01 + 0.03 * 0.1, step_s=(0.113, *[0.1] * 4))
    learnt = waking([combined([woken(5)] * n), combined([quick] * n)])
    assert (learnt.constant_s, learnt.share) == (pytest.approx(0.01), pytest.approx(0.03))


def test_calls_at_once_in_each_of_several_processes_all_count() -> None:
    """Two processes of two callers, a call 0.4 s: the steps of a caller follow each other, those of two overlap."""
    callers = [a_slice(2, 0.4), a_slice(2, 0.4)]
    member = combined(callers)
    assert member.n_steps / member.elapsed_s == pytest.approx(5.0)
    assert member.steps_between(1.0, 1.4) == pytest.approx(2.0)
    both = combined([member, member])
    assert both.n_steps / both.elapsed_s == pytest.approx(10.0)
    assert convert(to_plain(both), Slice) == both


def test_a_member_that_fails_is_named() -> None:
    with pytest.raises(TrialFailure) as caught:
        group.Group([Made(0.1), Made(0.1, fails=Status.OOM)]).ready()
    assert caught.value.status is Status.OOM
    assert (caught.value.message, caught.value.hint) == ("process 2 of 2: no more", "less")
    assert group.Group([Made(0.1), Made(0.1, fails=Status.OOM)]).close().returncode == 1
    assert group.Group([Made(0.1), Made(0.1, memory_bytes=None)]).peak_memory_bytes is None


@pytest.mark.parametrize("status", [Status.CRASHED, Status.TIMEOUT])
@pytest.mark.parametrize("when", ["slice", "batch"])
def test_a_member_that_dies_at_work_is_named_and_the_others_are_ended(status: Status, when: str) -> None:
    class Dying(Made):
        def end_slice(self) -> Slice:
            raise TrialFailure(status, "it is gone")

        def end_batch(self) -> ReadyReport:
            raise TrialFailure(status, "it is gone")

    members = [Made(0.1), Dying(0.1)]
    both = group.Group(members)
    both.ready()
    with pytest.raises(TrialFailure, match="process 2 of 2: it is gone") as caught:
        both.slice(0.5) if when == "slice" else both.set_batch_size(16)
    assert caught.value.status is status
    both.close()
    assert all(member.log[-1] == "close" for member in members)


def test_nothing_is_left_behind_where_one_cannot_start() -> None:
    started: list[Made] = []

    def start(_: int) -> Any:
        if len(started) == 2:
            raise OSError("no more processes")
        started.append(Made(0.1))
        return started[-1]

    with pytest.raises(OSError, match="no more processes"):
        group.launch(start, Deployment(processes=3))
    assert [member.log for member in started] == [["close"], ["close"]]
    assert group.launch(lambda _: started[0], Deployment()) is started[0]  # a group of one is that one


def test_snippets_say_how_many_to_start() -> None:
    deployment = Deployment(env={"TF_NUM_INTRAOP_THREADS": "1"}, processes=2)
    assert Deployment.from_dict(deployment.to_dict()) == deployment
    for format_ in set(Format) - {Format.JSON}:
        # A Deployment starts as many by itself.
        number = (
            "replicas: 2" if format_ is Format.TFSERVING_K8S else "# Run 2 processes of the program at the same time"
        )
        assert number in emit(deployment, format_, title="t", ways=WAYS)
    assert '"processes": 2' in emit(deployment, Format.JSON, title="t")
    assert "processes" not in emit(Deployment(env={"A": "1"}), Format.JSON, title="t")


def test_how_many_to_start_is_published_and_read_back() -> None:
    for deployment in (Deployment(env={"A": "1"}, cpus="0", processes=2), Deployment(env={"A": "1"})):
        assert Applied(**applied(deployment)).deployment == deployment


# ---- a batch that several share ------------------------------------------------------------------------------


def test_a_step_of_processes_that_share_a_batch_ends_with_the_slowest() -> None:
    class Stepping(Made):
        n_begun = 0

        def start_slice(self, duration_s: float) -> None:
            self.n_begun += 1

        def end_slice(self) -> Slice:
            return a_slice(1, self.step_s)

    members = [Stepping(0.1), Stepping(0.2)]
    both = group.launch(lambda number: members[number], Deployment(processes=2, shared_batch=8))
    assert both.ready().step_s == pytest.approx(0.2)
    ran = both.slice(0.0)
    assert (ran.n_steps, ran.elapsed_s, ran.step_s) == (1, pytest.approx(0.2), (0.2,))
    assert {each.n_begun for each in members} == {1}


def latency_of(batch_size: str, *pins: str) -> Job:
    spec = WorkloadSpec.of_name("lenet5", framework="tensorflow")
    request = SearchRequest(workload=spec, space="serving", objective="latency", pins=list(pins), batch_size=batch_size)
    return prepare(parse_request(request, stores=False))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has no second process")
def test_processes_share_the_batch_whose_latency_is_searched() -> None:
    job = latency_of("8")
    space = job.space
    assert {int(each["instances"]) * each.batch_size for each in (*space.points, *space.baselines.values())} == {8}
    assert space.reference.batch_size == 8
    assert {each["instances"] for each in space.points} >= {1, 2}
    assert {job.space.deployment(each).shared_batch for each in space.points if each["instances"] == 2} == {8}
    odd = latency_of("7").space
    assert {each["instances"] for each in odd.points} == {1}
    assert "core-each" not in odd.baselines
    with pytest.raises(BadInputError, match="a batch of 7 cannot be shared evenly by 2 processes"):
        latency_of("7", "instances=2")
    parsed = parse_compared("instances=2,batch_size=4", job, "sqlite:///none.db")
    assert (parsed.deployment.processes, parsed.deployment.shared_batch) == (2, 8)
    assert Applied(**applied(parsed.deployment)).deployment == parsed.deployment
    assert Deployment.from_dict(parsed.deployment.to_dict()) == parsed.deployment
    assert "# Split each batch of 8 items among the 2 processes: it is answered when all have answered." in emit(
        parsed.deployment, Format.SH, title="t"
    )
    assert items_per_step(parsed) == items_per_step(parse_compared("tf-default", job, "sqlite:///none.db")) == 8
    assert not space.contains(space.reference.with_values(instances=2))  # 16 items
    assert latency_of("8", "instances=2").space.satisfies_pins(parsed.setting)
    with pytest.raises(BadInputError, match="has steps of 16 items, and --objective latency compares steps of 8") as e:
        parse_compared("instances=2", job, "sqlite:///none.db")
    assert e.value.hint == "add batch_size=4"


def test_a_command_starts_its_own_processes() -> None:
    def job(*words: str) -> Job:
        spec = WorkloadSpec(words=("echo", "rate=1", *words), metric_regex=r"rate=(\d+)")
        return prepare(parse_request(SearchRequest(workload=spec, pins=["instances=2"]), stores=False))

    with pytest.raises(BadInputError, match="the command has no"):
        job()
    assert job("{instances}").space.domains["instances"] == (2,)


# ---- real processes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job() -> Job:
    """Two processes of a shipped workload, a thread each."""
    pins = ["instances=2", "inter_op=1", "intra_op=1"]
    spec = WorkloadSpec.of_name("lenet5", framework="tensorflow")
    return prepare(parse_request(SearchRequest(workload=spec, pins=pins, batch_size="64"), stores=False))


@pytest.fixture(scope="module")
def launchers(job: Job) -> Iterator[dict[str, Launcher]]:
    """Both launchers."""
    job.export()
    with closing(ForkLauncher(job.target(), notify=print)) as forks:
        yield {"fresh": FreshLauncher(target=job.target()), "fork": forks}


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["fresh", "fork"])
def test_two_processes_run_beside_each_other(
    job: Job, launchers: dict[str, Launcher], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = job.space.points[0]
    deployment = job.space.deployment(two)
    assert deployment.processes == 2
    with closing(launchers[kind].launch(two, deployment)) as process:
        facts = process.ready()
        assert facts.effective["context"]["created"] == 1 + 1 + 1
        process.pause()
        process.resume()
        orders: list[str] = []
        with monkeypatch.context() as patched:
            for order in ("start_slice", "end_slice"):
                original = getattr(ChildProcess, order)
                patched.setattr(
                    ChildProcess,
                    order,
                    lambda *words, order=order, original=original: orders.append(order) or original(*words),
                )
            ran = process.slice(1.0)
        process.set_batch_size(8)
        small = process.slice(0.1)
    alone = two.with_values(instances=1)
    with closing(launchers[kind].launch(alone, job.space.deployment(alone))) as single:
        memory = single.ready().memory_bytes
    assert orders == ["start_slice"] * 2 + ["end_slice"] * 2
    assert (ran.resumed, ran.elapsed_s > 0.9) == (2, True)  # the first step of each, after a pause, counts
    assert statistics.median(small.step_s) < statistics.median(ran.step_s)
    assert memory is not None
    assert facts.memory_bytes is not None
    assert memory < facts.memory_bytes < 2 * memory  # what both share, the libraries, counts once
    if len(os.sched_getaffinity(0)) > 1:
        assert facts.effective["mask"] == deployment.cpu_sets[0]
        assert len(set(deployment.cpu_sets)) == 2


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_group_that_loses_a_member_fails_and_leaves_nothing(job: Job, launchers: dict[str, Launcher]) -> None:
    two = job.space.points[0]
    started: list[Any] = []
    fresh = launchers["fresh"]
    assert isinstance(fresh, FreshLauncher)

    def start(number: int) -> Any:
        started.append(fresh.launch_one(two, job.space.deployment(two), number))
        return started[-1]

    both = group.launch(start, Deployment(processes=2))
    both.ready()
    os.kill(started[1].pid, signal.SIGKILL)
    with pytest.raises(TrialFailure) as caught:
        both.slice(0.2)
    assert caught.value.status is Status.CRASHED
    assert caught.value.message.startswith("process 2 of 2: the process was killed by SIGKILL")
    both.close()
    wait_until(lambda: all(gone(each.pid) for each in started))
