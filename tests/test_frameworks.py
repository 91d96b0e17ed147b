"""What is asked of every framework: those that come with tftune, and one that another package brings."""

from __future__ import annotations

import ast
import importlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import tftune, tftune_here
from tests.conftest import Call
from tests.frameworks import PACKAGES, from_outside
from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.frameworks.command.framework import CommandBuild
from tuner.frameworks.framework import Framework
from tuner.frameworks.onnxruntime.framework import OnnxRuntimeBuild
from tuner.frameworks.openvino.framework import OpenVinoBuild
from tuner.frameworks.tensorflow.build import TensorFlowBuild
from tuner.frameworks.tensorrt.framework import TensorRtBuild
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request, space_file
from tuner.job.request import SearchRequest
from tuner.machine.host import Machine
from tuner.measure.agreement import deviation
from tuner.plugins import Plugins
from tuner.report.emit import Format, Ways, emit
from tuner.space import space as spaces
from tuner.space.carrier import Argument, Option, Streams
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.spacefile import names
from tuner.space.term import COMPACT, EIGEN, Scale
from tuner.space.values import Numbers, Value, Words, expand
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

FRAMEWORKS = {each.name: each for each in [*map(registry.find, registry.names()), from_outside()]}
SPACES = [(name, space) for name, each in FRAMEWORKS.items() for space in names(each.spaces)]
KNOBS = [(name, knob) for name, each in FRAMEWORKS.items() for knob in each.knobs]
Builds = Mapping[str, list[Any]]


@pytest.fixture
def builds(stock: TensorFlowBuild, openmp: TensorFlowBuild, onnx: OnnxRuntimeBuild, ov: OpenVinoBuild) -> Builds:
    """Builds of each framework, as their probes see them."""
    numpy = importlib.import_module("tftune_numpy.framework").NumPyBuild(id="numpy", python="3.11.7", numpy="2.4.6")
    return {
        "tensorflow": [stock, openmp],
        "onnxruntime": [onnx],
        "openvino": [ov],
        "tensorrt": [TensorRtBuild(id="trt", python="3.11.7", tensorrt="11.4.0.106", converters={})],
        "command": [CommandBuild()],
        "numpy": [numpy],
    }


def machines(machine: Machine) -> list[Machine]:
    """Return the made machine of two sockets, and one of a single CPU under a quota of less."""
    one = replace(
        machine,
        online_cpus=1,
        logical_cpus=1,
        physical_cores=1,
        threads_per_core=1,
        sockets=1,
        numa_nodes={"0": "0"},
        affinity="0",
    )
    return [machine, replace(machine, cpu_quota=3.0), replace(one, cpu_quota=0.5)]


def resolved(framework: Framework, name: str, machine: Machine, build: Any, workload: Workload) -> Space:
    """Return a space of a framework."""
    file = space_file(name, framework, machine, default_batch=workload.batch_size)
    return spaces.resolve(file, catalogue=framework.catalogue, machine=machine, build=build, workload=workload)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_is_one_folder(name: str) -> None:
    framework = FRAMEWORKS[name]
    assert framework.name == name
    assert framework.title
    assert (framework.child is None) is (framework.kinds == ())  # a command needs none
    for part in ("adapter", "probe") if framework.child is not None else ():
        ast.parse((framework.child / f"{part}.py").read_text(), feature_version=(3, 9))
    assert framework.devices[0] in names(framework.spaces)
    assert all(kind in framework.kinds for kind in framework.suffixes.values())
    assert framework.catalogue.default == framework.baselines[0].name


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_build_is_plain_data_that_names_its_framework(name: str, builds: Builds) -> None:
    for build in builds[name]:
        document = json.loads(json.dumps(build.to_dict()))
        assert document["framework"] == name
        assert {"id", "python"} <= document.keys()
        assert FRAMEWORKS[name].build_lines(document)[0]
        assert build.title


@pytest.mark.parametrize(("name", "space_name"), SPACES)
def test_every_space_resolves_on_every_machine(
    name: str, space_name: str, machine: Machine, builds: Builds, resnet50: Workload
) -> None:
    framework = FRAMEWORKS[name]
    for build in builds[name]:
        for host in machines(machine):
            space = resolved(framework, space_name, host, build, resnet50)
            # The default is measured with nothing set, and every other setting says something.
            assert space.default == framework.catalogue.default
            nothing = space.deployment(space.reference)
            assert (nothing.env, nothing.options, nothing.cpus) == ({}, {}, None)
            threads = same_threads(space)
            other_points = [point for point in space.points if point.without("batch_size") != threads]
            assert all(space.deployment(point) != nothing for point in other_points)
            for setting in space.baselines.values():
                for knob, value in setting.items:
                    assert framework.knobs[knob].parse(str(value), host) == value
            regimes = framework.initial_design(space)
            assert set(regimes) <= set(space.points)
            assert not set(regimes) & set(space.baselines.values())
            assert all(framework.catalogue.n_threads(point) >= 0 for point in space.points[:100])


def same_threads(space: Space) -> Setting:
    """Return the default without its batch size."""
    return space.reference.without("batch_size")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_is_held_while_a_knob_is_proven_is_a_value(name: str, machine: Machine) -> None:
    framework = FRAMEWORKS[name]
    for knob in framework.knobs:
        for other, value in framework.fixed_while_proving(knob).items():
            assert other != knob
            assert framework.knobs[other].parse(str(value), machine) == value


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_knobs_of_one_name_are_one_knob(name: str) -> None:
    """What a knob is called says what it does, whatever framework has it."""
    for other in FRAMEWORKS.values():
        for knob in FRAMEWORKS[name].knobs.keys() & other.knobs.keys():
            assert FRAMEWORKS[name].knobs[knob] is other.knobs[knob]


@pytest.mark.parametrize(("name", "knob_name"), KNOBS)
def test_every_knob_has_all_its_parts(name: str, knob_name: str, machine: Machine, builds: Builds) -> None:
    """A knob is one object: what one of these lines needs cannot be forgotten."""
    framework = FRAMEWORKS[name]
    knob = framework.knobs[knob_name]
    assert knob.name == knob_name
    assert knob.meaning
    assert knob.carrier.title
    for build in builds[name]:
        default = knob.default(machine, build, 8)
        assert knob.parse(str(default), machine) == default
        reason = knob.why_inactive(build, {}, knob.devices[0] if knob.devices else "cpu")
        assert reason is None or len(reason) > 10
    # Who carries it shows it: what our own code is given or calls needs no audit, and everything else has one.
    assert (knob.audit is None) is isinstance(knob.carrier, Argument | Streams)
    # One value may be no entry at all, such as no binding.
    deployments = [knob.carrier.deploy(value, {str(value): "/lib/a.so"}) for value in some_values(knob, machine)]
    deployed = next(filter(None, deployments))
    assert len(deployments) - len([*filter(None, deployments)]) <= 1
    # What the probe experiments on is what carries it, and it acts on the values of the proof.
    if knob.experiment is not None:
        assert knob.carrier.name == knob.experiment.name
        assert knob.experiment in framework.catalogue.experiments
        assert knob.contrast_values is not None or not knob.in_every_setting
    if knob.contrast_values is not None:
        low, high = knob.contrast_values(machine)
        assert low != high
        assert [knob.parse(str(value), machine) for value in (low, high)] == [low, high]
    if isinstance(knob.values, Numbers) and knob.values.counts_threads:
        beside = {each: framework.knobs[each].default(machine, builds[name][0], 8) for each in framework.knobs}
        beside |= {"inter_op": 1, **framework.fixed_while_proving(knob_name)}
        few, many = (knob.n_threads({**beside, knob.name: n}) for n in (1, 4))
        assert few < many  # a setting of fewer threads is simpler
    if knob.vocabulary is not None:
        pool, on_gpu = knob.vocabulary.pool or EIGEN, knob.vocabulary.device == "gpu"
        scale = Scale(cores=4, sockets=1, pools=2, batch_size=8, pool=pool, onednn=False, on_gpu=on_gpu)
        assert knob.vocabulary.has_effect(scale)
        words = [term.words for term in knob.vocabulary.terms]
        assert len(set(words)) == len(words) > 0
        values = [term.value_at(scale, {}) for term in knob.vocabulary.terms if term.name != COMPACT]
        assert [knob.parse(str(value), machine) for value in values] == values
    assert set(knob.overrides) <= framework.knobs.keys()
    # An option of a session has to be one that the framework writes.
    if isinstance(knob.carrier, Option):
        text = emit(deployed, Format.PYTHON, title="t", ways=Ways(session=framework.session_code))
        ast.parse(text)
        assert knob.carrier.name in text


def some_values(knob: Knob, machine: Machine) -> list[Value]:
    """Return a few values that a knob can have."""
    if isinstance(knob.values, Numbers):
        return [n for n in range(knob.values.minimum, 4) if n <= knob.values.maximum(machine)]
    if isinstance(knob.values, Words) and knob.values.words:
        return list(knob.values.words)
    if isinstance(knob.values, Words) and not knob.values.presets:
        return [knob.parse("threads", machine)]
    return list(expand(knob.name, knob.values.presets, list(knob.values.presets), machine))


def test_a_knob_of_another_framework_is_told_by_its_owner(machine: Machine, tmp_path: Path) -> None:
    catalogue = registry.catalogue(FRAMEWORKS["onnxruntime"])
    with pytest.raises(BadInputError, match="intra_op is a knob of tensorflow, not of onnxruntime"):
        catalogue.knob("intra_op")
    with pytest.raises(BadInputError, match="unknown knob 'intra_opp'"):
        catalogue.knob("intra_opp")
    (tmp_path / "mine.toml").write_text("schema = 1\n[knobs.kmp_blocktime]\nvalues = [0, 1]\n")
    with pytest.raises(BadInputError, match="kmp_blocktime is a knob of tensorflow, not of onnxruntime"):
        space_file(str(tmp_path / "mine.toml"), FRAMEWORKS["onnxruntime"], machine)


def test_frameworks_are_found_by_name_and_by_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="unknown framework 'onnxruntim'; did you mean onnxruntime"):
        registry.find("onnxruntim")
    assert registry.reader_of(tmp_path / "model.onnx") is FRAMEWORKS["onnxruntime"]
    assert registry.reader_of(tmp_path / "model.keras") is FRAMEWORKS["tensorflow"]
    assert registry.reader_of(tmp_path / "model.py") is None
    assert registry.for_build({"tensorflow": "2.21.0"}) is FRAMEWORKS["tensorflow"]  # a study of an earlier version


# ---- real processes -------------------------------------------------------------------------------------------

N_CPUS = len(os.sched_getaffinity(0))
UNLIKE_THE_DEFAULT: dict[str, dict[str, Value]] = {
    "tensorflow": {"inter_op": N_CPUS + 1, "intra_op": N_CPUS + 3},
    "onnxruntime": {
        "intra_op_num_threads": N_CPUS + 3,
        "inter_op_num_threads": N_CPUS + 1,
        "execution_mode": "parallel",
        "intra_op_spinning": 0,
        "inter_op_spinning": 0,
    },
    "openvino": {"inference_num_threads": 1, "cpu_pinning": 0, "performance_hint": "THROUGHPUT"},
}
UNBOUND: dict[str, dict[str, Value]] = {
    "tensorflow": {},
    "onnxruntime": {"intra_op_affinity": "none"},
    "openvino": {},
}
"""What these settings have besides, and which is nothing that could be seen in a process."""


@pytest.fixture(scope="module", params=UNLIKE_THE_DEFAULT)
def job(request: pytest.FixtureRequest) -> Job:
    """A job of a shipped workload on each framework."""
    spec = WorkloadSpec.of_name("lenet5", framework=request.param)
    return prepare(parse_request(SearchRequest(workload=spec, batch_size="8"), stores=False))


@pytest.fixture(scope="module")
def launchers(job: Job) -> Iterator[dict[str, Launcher]]:
    """Both launchers of a job; forks must never have to say anything."""

    def told(line: str) -> None:
        raise AssertionError(line)

    job.export()
    with closing(ForkLauncher(job.target(), notify=told)) as forks:
        # What refuses to be forked is started fresh only.
        forked: dict[str, Launcher] = {} if job.build.fork_refusal else {"fork": forks}
        yield {"fresh": FreshLauncher(target=job.target()), **forked}


@pytest.mark.tensorflow
def test_the_probe_sees_what_reaches_the_build(job: Job) -> None:
    answers = job.framework.reach(job.build)
    assert answers.keys() == {each.name for each in job.space.catalogue.experiments}
    if job.framework.name == "onnxruntime":
        assert {each.answer for each in answers.values()} <= {True, None}  # spinning is not seen on a busy machine
        assert sum(each.answer is True for each in answers.values()) >= 3
        assert job.build.default_threads is not None  # type: ignore[attr-defined]


@pytest.mark.tensorflow
def test_every_knob_takes_effect_in_a_process(job: Job, launchers: dict[str, Launcher]) -> None:
    reference, values = job.space.reference, UNLIKE_THE_DEFAULT[job.framework.name]
    wanted = reference.with_values(**values, **UNBOUND[job.framework.name])
    deployment = job.space.catalogue.deploy(wanted.to_dict())
    for launcher in launchers.values():
        with closing(launcher.launch(wanted, deployment)) as process:
            facts = process.ready()
            assert process.slice(0.05).n_steps > 0
        findings = job.auditor.audit(wanted, deployment, facts.effective)
        assert {each.knob: each.answer for each in findings} == dict.fromkeys(values, True)
        # The audit can say no: what runs by default is not what was wanted.
        with closing(launcher.launch(reference, job.space.deployment(reference))) as process:
            facts = process.ready()
        findings = job.auditor.audit(wanted, deployment, facts.effective)
        assert {each.answer for each in findings} == {False}


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_workload_computes_the_same_whatever_computes_it() -> None:
    samples = {}
    for name in UNLIKE_THE_DEFAULT:
        job = prepare(
            parse_request(
                SearchRequest(workload=WorkloadSpec.of_name("lenet5", framework=name), batch_size="8"), stores=False
            )
        )
        job.export()
        launcher = FreshLauncher(target=job.target())
        reference = job.space.reference
        with closing(launcher.launch(reference, job.space.deployment(reference))) as process:
            samples[name] = process.ready().sample
    one, *others = samples.values()
    assert len(others) == 2
    for other in others:
        apart = deviation(one, other)  # of outputs of the same names, for the same inputs
        assert apart is not None
        assert apart < 1e-3


@pytest.mark.tensorflow
def test_a_device_of_another_package_is_measured_on(tmp_path: Path) -> None:
    """Its environment, its memory and its identity are in the study."""
    env = dict(os.environ, PYTHONPATH=str(PACKAGES))
    command = ["search", str(PACKAGES / "product.py"), "--framework", "numpy", "--time-budget", "6s", "--json"]
    documents = []
    for device in ("cpu", "counted"):
        ended = tftune(*command, "--device", device, cwd=tmp_path, env=env)
        assert ended.returncode == 0, ended.stderr
        documents.append(json.loads(ended.stdout))
    cpu, counted = documents
    assert (cpu["device"], counted["device"]) == ({"name": "cpu"}, {"name": "counted", "unit": "arrays"})
    assert cpu["study"] != counted["study"]
    assert {trial["peak_memory_bytes"] for trial in counted["history"]} == {64}
    assert all(trial["peak_memory_bytes"] > 1 << 20 for trial in cpu["history"])


def test_an_unknown_device_is_one_line(call: Call) -> None:
    code, out, err = call("inspect", "lenet5", "--device", "cpuu")
    assert (code, out) == (2, "")
    assert "unknown device 'cpuu'; did you mean cpu or gpu?" in err


BROKEN = [
    ("raise RuntimeError('no driver')", "RuntimeError('no driver')"),
    ("import sys; sys.exit(3)", "SystemExit(3)"),
    ("print('hello'); FRAMEWORK = 'text'", "it is 'text', not a framework: it has no name"),
    ("from tuner.frameworks.command.framework import CommandFramework as FRAMEWORK", "not a framework: it is a class"),
    ("class Half: name, title = 'half', 'Half'\nFRAMEWORK = Half()", "not a framework: it has no spaces"),
]


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages that bring frameworks, each of which is broken in a way of its own."""
    for number, (text, _) in enumerate(BROKEN):
        (tmp_path / f"broken_{number}.py").write_text(text)
        metadata = tmp_path / f"broken_{number}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: broken_{number}\nVersion: 1.0\n")
        entry_point = f"broken_{number} = broken_{number}:FRAMEWORK"
        (metadata / "entry_points.txt").write_text(f"[tftune.frameworks]\n{entry_point}\n")
    monkeypatch.syspath_prepend(tmp_path)
    [plugins] = [each for each in vars(registry).values() if isinstance(each, Plugins)]
    monkeypatch.delitem(vars(plugins), "_places", raising=False)  # what is installed is looked up once
    yield
    vars(plugins).pop("_places", None)


@pytest.mark.usefixtures("broken")
def test_broken_packages_stop_nothing_but_themselves(tmp_path: Path) -> None:
    """Which framework reads the file, and whose knob this is, is asked of all of them: others are found past them."""
    done = tftune_here("inspect", "none.onnx", "--set", "blas_threads=2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no model file none.onnx" in done.stderr


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_asking_for_a_broken_package_is_one_line(number: int, tmp_path: Path) -> None:
    done = tftune_here("inspect", "lenet5", "--framework", f"broken_{number}", cwd=tmp_path)
    assert done.returncode == 3
    assert f"cannot load the framework 'broken_{number}': " in done.stderr
    assert f"{BROKEN[number][1]}; reinstall or remove the package" in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_whatever_a_framework_has_to_say_of_itself_is_looked_for() -> None:
    [plugins] = [each for each in vars(registry).values() if isinstance(each, Plugins)]
    declared = [name for name in Framework.__annotations__ if not hasattr(Framework, name)]
    assert vars(plugins)["_has"] == tuple(declared)


@pytest.mark.tensorflow
def test_a_framework_of_another_package_searches(tmp_path: Path) -> None:
    """From outside of the package: NumPy, as docs/contributing/architecture.md shows it."""
    env = dict(os.environ, PYTHONPATH=str(PACKAGES))
    command = ["search", str(PACKAGES / "product.py"), "--framework", "numpy", "--time-budget", "8s", "--json"]
    ended = tftune(*command, cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["runtime"]["framework"] == "numpy"
    assert document["default"] == "numpy-default"
    assert {trial["status"] for trial in document["history"]} == {"ok"}
    assert document["recommended"]["setting"].keys() == {"blas_threads", "batch_size"}
    without = tftune("inspect", "lenet5", "--framework", "numpy", cwd=tmp_path)
    assert without.returncode == 2
    assert "unknown framework 'numpy'" in without.stderr


def test_a_command_is_tried_at_the_batch_sizes_of_its_space(machine: Machine, resnet50: Workload) -> None:
    space = resolved(FRAMEWORKS["command"], "cpu", machine, CommandBuild(), resnet50)
    usual, sizes = space.reference.batch_size, sorted(map(int, space.domains["batch_size"]))
    design = space.at_batch_sizes([*sizes, 7777])
    assert [each.batch_size for each in design] == [size for size in sizes if size != usual]
    assert {each.without("batch_size") for each in design} == {same_threads(space)}
