"""Ensembles: different models side by side, what each gets of the cores, and how they are measured and deployed."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Call
from tests.frameworks import MADE_MACHINE, STOCK, WAYS
from tuner.deploy.program import copies
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.advise import PROPORTION, hints
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.report.emit import Format, emit
from tuner.result.study import Applied, applied
from tuner.space.deployment import Deployment
from tuner.space.ensemble import catalogue_of, divisions, in_proportion, share_sets
from tuner.space.space import Space, resolve
from tuner.space.spacefile import read
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.group import Ensemble
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, Status, TrialFailure, lockstep
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Kind, find

NAMES = ("lenet5", "mlp")
CORES = ("0,8", "1,9", "2,10", "3,11")


def spec_of(text: str, **options: object) -> WorkloadSpec:
    return WorkloadSpec(words=(text,), **options)  # type: ignore[arg-type]


MACHINE = replace(MADE_MACHINE, cores=[f"{core},{core + 8}" for core in range(8)])


def space_of(machine: Machine = MACHINE, text: str = "lenet5+mlp", **pins: str) -> Space:
    workload = find(spec_of(text))
    catalogue = catalogue_of(FRAMEWORK.catalogue, [member.name for member in workload.members])
    file = read("cpu", machine, catalogue=catalogue, folder=FRAMEWORK.spaces, default_batch=workload.batch_size)
    return resolve(file, catalogue=catalogue, machine=machine, build=STOCK, workload=workload, pins=pins)


def test_nothing_is_shared_out_where_cores_are_not_known() -> None:
    shares = {(p["cores_lenet5"], p["cores_mlp"]) for p in space_of(replace(MACHINE, cores=())).points}
    assert shares == {(8, 8)}


def two_cores() -> Machine:
    return replace(
        MADE_MACHINE, physical_cores=2, logical_cpus=2, affinity="0-1", cores=("0", "1"), numa_nodes={0: "0-1"}
    )


# ---- shares --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "cores"), [(2, 2), (2, 8), (3, 8), (3, 16), (8, 64), (8, 8), (8, 15)])
def test_divisions_use_all_cores(n: int, cores: int) -> None:
    ways = divisions(n, cores)
    assert len(set(ways)) == len(ways) <= 500
    assert all(len(way) == n and sum(way) == cores and min(way) >= 1 for way in ways)


@pytest.mark.parametrize(("n", "cores"), [(3, 2), (8, 4), (8, 7), (2, 1)])
def test_members_overlap_where_there_are_too_few_cores(n: int, cores: int) -> None:
    ways = divisions(n, cores)
    assert len(set(ways)) == len(ways) <= 500
    assert (cores,) * n not in ways
    assert all(1 <= share <= cores for way in ways for share in way)
    assert ((1,) * n in ways) == (cores > 1)


@pytest.mark.parametrize(
    ("weights", "cores", "shares"),
    [
        ([1, 1], 2, (1, 1)),
        ([1, 3], 8, (2, 6)),
        ([1, 100], 8, (1, 7)),
        ([4.1, 4.3, 19.6], 16, (2, 3, 11)),
        ([4.1, 4.3, 19.6], 2, (1, 1, 1)),
        ([1, 1, 1], 8, (3, 3, 2)),
    ],
)
def test_shares_in_proportion(weights: list[float], cores: int, shares: tuple[int, ...]) -> None:
    assert in_proportion(weights, cores) == shares


def test_each_share_is_whole_cores() -> None:
    assert share_sets(CORES, (1, 3), whole=4) == ("0,8", "1-3,9-11")
    assert share_sets(CORES, (4, 4), whole=4) == (None, None)
    assert share_sets(CORES, (1, 1, 4), whole=4) == ("0,8", "1,9", None)
    # The third begins with the first core again.
    assert share_sets(("0", "1"), (1, 1, 1), whole=2) == ("0", "1", "0")
    # A quota leaves one of two cores: that share is all there is.
    assert share_sets(("0", "1"), (1, 1), whole=1) == (None, None)


# ---- the space -----------------------------------------------------------------------------------------------


def test_a_space_has_a_share_for_each_member() -> None:
    space = space_of()
    assert space.members == NAMES
    assert {"cores_lenet5", "cores_mlp"} <= space.domains.keys()
    assert not {"instances", "streams", "cpus"} & space.catalogue.knobs.keys()
    shares = {(int(point["cores_lenet5"]), int(point["cores_mlp"])) for point in space.points}
    assert shares == {(8, 8), *divisions(2, 8)}
    assert space.baselines["equal-shares"].to_dict() | {"cores_lenet5": 4, "cores_mlp": 4} == (
        space.baselines["equal-shares"].to_dict()
    )
    assert space.reference["cores_mlp"] == 8


def test_nothing_is_set_for_the_default() -> None:
    space = space_of()
    deployment = space.deployment(space.reference)
    assert deployment.processes == 2
    assert [(each.name, dict(each.env), each.cpus) for each in deployment.members] == [
        ("lenet5", {}, None), ("mlp", {}, None),
    ]  # fmt: skip


def test_a_member_has_no_more_threads_than_cores() -> None:
    space = space_of()
    setting = next(p for p in space.points if (p["cores_lenet5"], p["cores_mlp"]) == (3, 5))
    deployment = space.deployment(setting)
    threads = [int(each.env["TF_NUM_INTRAOP_THREADS"]) for each in deployment.members]
    assert threads == [3, 5]
    sets = [parse_list(str(each.cpus)) for each in deployment.members]
    assert not sets[0] & sets[1]
    assert [len(each) for each in sets] == [6, 10]  # two hardware threads per core
    assert deployment.arguments == {"batch_size": setting.batch_size}
    assert space.member_setting(setting, 0).to_dict().keys() == {"inter_op", "intra_op", "batch_size"}


def test_all_cores_for_all_leaves_the_threads_as_they_are_set() -> None:
    space = space_of()
    shared = space.reference.with_values(intra_op=16, inter_op=1)
    threads = [each.env["TF_NUM_INTRAOP_THREADS"] for each in space.deployment(shared).members]
    assert threads == ["16", "16"]  # of 8 cores with two hardware threads each


def test_shares_can_be_held() -> None:
    space = space_of(cores_mlp="6")
    assert {(p["cores_lenet5"], p["cores_mlp"]) for p in space.points} == {(2, 6)}
    with pytest.raises(BadInputError, match="8 cores cannot be shared out with cores_mlp=6, cores_lenet5=6"):
        space_of(cores_mlp="6", cores_lenet5="6")


def test_two_cores_can_be_shared_by_three() -> None:
    space = space_of(two_cores(), "lenet5+mlp+ncf")
    shares = {tuple(int(p[f"cores_{name}"]) for name in space.members) for p in space.points}
    assert shares == set(itertools.product((1, 2), repeat=3))


# ---- what is asked for ---------------------------------------------------------------------------------------


def test_models_joined_by_plus_are_an_ensemble() -> None:
    workload = find(spec_of("resnet50+densenet201+vgg19"))
    assert (workload.kind, workload.name) == (Kind.ENSEMBLE, "resnet50+densenet201+vgg19")
    assert [member.name for member in workload.members] == ["resnet50", "densenet201", "vgg19"]
    assert workload.batch_size == min(member.batch_size for member in workload.members)
    assert workload.fingerprint != find(spec_of("densenet201+resnet50+vgg19")).fingerprint


def test_a_path_may_hold_a_plus(tmp_path: Path) -> None:
    path = tmp_path / "a+b.py"
    path.write_text((Path(__file__).parent.parent / "workloads" / "lenet5.py").read_text())
    assert find(spec_of(str(path))).name == "a+b"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("lenet5+lenet5", {}, "lenet5 is in the ensemble twice"),
        ("lenet5+mpl", {}, "unknown workload 'mpl'"),
        ("lenet5+", {}, "'lenet5+' has an empty name"),
        ("lenet5+mlp", {"mode": "training"}, "--mode does not apply to an ensemble"),
        ("lenet5+mlp", {"params": ("size=3",)}, "--param does not apply to an ensemble"),
        ("lenet5+mlp", {"rate": 3.0}, "--rate does not apply to an ensemble"),
        ("+".join(f"m{i}" for i in range(9)), {}, "unknown workload 'm0'"),
    ],
)
def test_bad_ensembles_are_one_line(text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        find(spec_of(text, **options))


def test_knobs_of_a_single_model_are_refused(call: Call) -> None:
    code, _, error = call("search", "lenet5+mlp", "--set", "instances=2", "--trials", "1")
    assert code == 2
    assert "instances is a knob of a single model, not of an ensemble" in error
    code, _, error = call("search", "lenet5+mlp", "--space", "serving", "--trials", "1")
    assert code == 2
    assert "is a knob of a single model, not of an ensemble" in error


# ---- steps of several ----------------------------------------------------------------------------------------


class Scripted:
    """A member that takes its steps as scripted, or fails."""

    def __init__(self, start_s: float, step_s: float, *, dies_after: int | None = None) -> None:
        self.at, self.step_s, self.dies_after = start_s, step_s, dies_after
        self.n = 0
        self.closed = 0
        self.peak_memory_bytes: int | None = 10

    def ready(self) -> ReadyReport:
        warm_up = Slice(start_s=0.0, elapsed_s=self.step_s, n_steps=1, step_s=(self.step_s,))
        sample = {"inputs": str(self.step_s), "outputs": {"y": [self.step_s]}}
        return ReadyReport(
            import_s=0.0, context_s=0.0, load_s=0.0, first_step_s=self.step_s, warm_up=warm_up, effective={},
            sample=sample,
        )  # fmt: skip

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        return self.ready()

    def slice(self, duration_s: float) -> Slice:
        self.start_slice(duration_s)
        return self.end_slice()

    def start_slice(self, duration_s: float) -> None:
        assert duration_s < self.step_s  # one step

    def end_slice(self) -> Slice:
        self.n += 1
        if self.n == self.dies_after:
            raise TrialFailure(Status.CRASHED, "the process was killed by SIGKILL")
        start_s, self.at = self.at, self.at + 1.0
        return Slice(start_s=start_s, elapsed_s=self.step_s, n_steps=1, step_s=(self.step_s,), resumed=int(self.n == 1))

    def start_batch(self, batch_size: int) -> None: ...

    def end_batch(self) -> ReadyReport:
        return self.ready()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> ExitStatus:
        self.closed += 1
        return ExitStatus(returncode=0, peak_memory_bytes=10)


def test_a_step_lasts_until_the_slowest_has_answered() -> None:
    quick, slow = (Slice(start_s=s, elapsed_s=e, n_steps=1, step_s=(e,)) for s, e in ((1.0, 0.2), (1.1, 0.4)))
    step = lockstep([quick, slow])
    assert (step.start_s, step.n_steps) == (1.0, 1)
    assert step.elapsed_s == pytest.approx(0.5)


def test_an_ensemble_steps_together() -> None:
    ensemble = Ensemble([Scripted(0.0, 0.2), Scripted(0.05, 0.4)], ["quick", "slow"])
    facts = ensemble.ready()
    assert facts.step_s == pytest.approx(0.4)
    assert facts.sample == {"inputs": "0.2 0.4", "outputs": {"quick/y": [0.2], "slow/y": [0.4]}}
    timed = ensemble.slice(0.0)
    assert (timed.n_steps, timed.resumed) == (1, True)
    timed = ensemble.slice(0.01)
    assert timed.n_steps > 1
    assert set(timed.step_s) == {0.45}
    assert len(timed.step_s) <= 400
    assert timed.elapsed_s == pytest.approx(0.45 * timed.n_steps)


def test_a_member_that_dies_is_named() -> None:
    ensemble = Ensemble([Scripted(0.0, 0.2), Scripted(0.0, 0.4, dies_after=2)], ["quick", "slow"])
    with pytest.raises(TrialFailure, match="slow: the process was killed by SIGKILL"):
        ensemble.slice(5.0)
    assert ensemble.close().peak_memory_bytes == 20


# ---- deploying it --------------------------------------------------------------------------------------------


@pytest.fixture
def deployment() -> Deployment:
    parts = [
        Deployment(name=name, env={"TF_NUM_INTRAOP_THREADS": str(n)}, cpus=cpus, arguments={"batch_size": 8})
        for name, n, cpus in (("lenet5", 1, "0"), ("a b", 2, None))
    ]
    return Deployment(processes=2, members=tuple(parts), arguments={"batch_size": 8})


def test_a_deployment_survives_being_written(deployment: Deployment) -> None:
    assert Deployment.from_dict(json.loads(json.dumps(deployment.to_dict()))) == deployment
    assert Applied(**applied(deployment)).deployment == deployment


def test_each_copy_has_its_model(deployment: Deployment) -> None:
    group = copies(replace(deployment, members=(deployment.members[1], deployment.members[1])), ["serve", "{model}"])
    assert [(copy.words, copy.env["TFTUNE_MODEL"], copy.env["TFTUNE_INSTANCE"]) for copy in group] == [
        (("serve", "a b"), "a b", "0"),
        (("serve", "a b"), "a b", "1"),
    ]


def test_the_shell_function_starts_each_model(deployment: Deployment, tmp_path: Path) -> None:
    snippet = emit(deployment, Format.SH, title="an ensemble")
    assert "# Set the batch size in your own code: 8\n" in snippet
    cpu = str(min(os.sched_getaffinity(0)))
    script = snippet.replace("taskset -c 0 ", f"taskset -c {cpu} ")
    program = tmp_path / "program"
    program.write_text('echo "$TFTUNE_INSTANCE, $TFTUNE_MODEL, $TF_NUM_INTRAOP_THREADS"')
    started = f"{script}\ntftune_instances bash {program}"
    ended = subprocess.run(["bash", "-c", started], capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert sorted(ended.stdout.splitlines()) == ["0, lenet5, 1", "1, a b, 2"]


@pytest.mark.parametrize("format_", list(Format))
def test_a_snippet_is_for_all_models_or_asks_which(deployment: Deployment, format_: Format) -> None:
    if format_ in (Format.SH, Format.COMPOSE, Format.JSON):
        text = emit(deployment, format_, title="an ensemble")
        assert text.index("lenet5") < text.index("a-b" if format_ is Format.COMPOSE else "a b")
    else:
        with pytest.raises(BadInputError, match="speaks of one program") as caught:
            emit(deployment, format_, title="an ensemble")
        assert caught.value.hint == "add --model with one of: lenet5, a b"
    assert "2" in emit(deployment.member("a b"), format_, title="a member", ways=WAYS)
    with pytest.raises(BadInputError, match="unknown model of the study 'c'"):
        deployment.member("c")


# ---- the real thing ------------------------------------------------------------------------------------------


def job_of(text: str, **options: object) -> Job:
    request = SearchRequest(workload=spec_of(text), batch_size="8", **options)  # type: ignore[arg-type]
    return prepare(parse_request(request, stores=False))


@pytest.mark.tensorflow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it shares out two CPUs")
@pytest.mark.parametrize("kind", ["fresh", "fork"])
def test_two_real_models_answer_together(kind: str) -> None:
    job = job_of("lenet5+mlp")
    job.export()
    split = next(p for p in job.space.points if p["cores_lenet5"] == 1)
    assert hints(job, None, notify=print).keys() <= {PROPORTION}
    target = job.target()
    with closing(ForkLauncher(target, notify=print)) as forks:
        launcher = FreshLauncher(target=target) if kind == "fresh" else forks
        for setting in (job.space.reference, split):
            with closing(launcher.launch(setting, job.space.deployment(setting))) as process:
                facts = process.ready()
                assert facts.sample is not None
                assert {name.partition("/")[0] for name in facts.sample["outputs"]} == set(NAMES)
                timed = process.slice(0.2)  # of more than 400 steps not all durations are told
                assert len(timed.step_s) == timed.n_steps >= 2
                assert timed.elapsed_s == pytest.approx(sum(timed.step_s), abs=timed.n_steps * 5e-8)
                larger = process.set_batch_size(16)
                assert larger.step_s > 0


@pytest.mark.tensorflow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it shares out two CPUs")
@pytest.mark.usefixtures("forks_only")
def test_a_real_search_of_an_ensemble(call: Call, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/t.db"
    code, out, _ = call(
        "search", "lenet5+mlp", "--batch-size", "64", "--trials", "5", "--time-budget", "12s", "--json",
        "--storage", storage,
    )  # fmt: skip
    assert code == 0
    study = json.loads(out)
    assert study["workload"]["members"] == list(NAMES)
    assert {"tf-default", "equal-shares"} <= study["baselines"].keys()
    assert study["groups"] is None
    members = study["recommended"]["members"]
    assert [member["name"] for member in members] == list(NAMES)
    for format_ in Format:
        assert call("emit", "last", "--format", format_, "--model", "mlp", "--storage", storage)[0] == 0
    assert call("emit", "last", "--storage", storage)[0] == 0
    assert call("emit", "last", "--format", "k8s", "--storage", storage)[0] == 2
    assert "cores_lenet5" in call("show", "last", "--details", "--storage", storage)[1]
