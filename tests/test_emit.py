"""Every snippet is read by what it is written for."""

from __future__ import annotations

import configparser
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dotenv
import kubernetes_validate
import msgspec
import psutil
import pytest
import yaml
from msgspec import structs

import tuner
from tests.command_line import ROOT
from tests.conftest import Call
from tests.frameworks import MADE_MACHINE, WAYS
from tests.processes import gone, wait_until
from tuner.errors import BadInputError
from tuner.machine.host import Machine
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.report import studycard
from tuner.report.emit import SERVING, Batching, Format, emit
from tuner.result.study import StudyResult
from tuner.space.deployment import Deployment

PLAIN = {"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "2"}
AFFINITY = {"OMP_NUM_THREADS": "8", "KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "0"}
PROCLIST = {"KMP_AFFINITY": "granularity=fine,proclist=[0-3,{8,9}],explicit"}
HOSTILE = {"X": 'it\'s 100 % "$HOME" `id` \\ #x'}
NOTHING: dict[str, str] = {}
ENVS = [PLAIN, AFFINITY, PROCLIST, HOSTILE, NOTHING]
TITLE = "tftune, study made: better\nthan"
KUBERNETES = "1.34"


def here(n_cpus: int, *, of: int | None = None, quota: float | None = None) -> Machine:
    """Return a machine of which the mask leaves so many CPUs, from 0 on, beside a quota."""
    affinity = "0" if n_cpus == 1 else f"0-{n_cpus - 1}"
    return replace(
        MADE_MACHINE, online_cpus=of or n_cpus, logical_cpus=n_cpus, affinity=affinity, cpu_quota=quota, cores=[]
    )


@pytest.mark.parametrize("env", ENVS)
def test_sh(env: dict[str, str]) -> None:
    script = (
        emit(Deployment(env=env), Format.SH, title=TITLE)
        + f'exec "{sys.executable}" -c "import json, os; print(json.dumps(dict(os.environ)))"'
    )
    done = subprocess.run(["sh", "-eu", "-c", script], env={"HOME": "/h"}, capture_output=True, text=True, check=True)
    environment = json.loads(done.stdout)
    assert {name: environment[name] for name in env} == env


@pytest.mark.parametrize("env", ENVS)
def test_dotenv(env: dict[str, str]) -> None:
    assert (
        dotenv.dotenv_values(
            stream=io.StringIO(emit(Deployment(env=env), Format.DOTENV, title=TITLE)), interpolate=True
        )
        == env
    )


@pytest.mark.parametrize("env", ENVS)
def test_k8s(env: dict[str, str]) -> None:
    read = yaml.safe_load(emit(Deployment(env=env), Format.K8S, title=TITLE))
    assert list(read) == ["env"]
    assert all(entry.keys() == {"name", "value"} and isinstance(entry["value"], str) for entry in read["env"])
    assert {entry["name"]: entry["value"] for entry in read["env"]} == env


def test_what_is_the_number_of_cpus_follows_the_limit_of_the_container() -> None:
    text = emit(Deployment(env={"A": "2", "B": "2"}), Format.K8S, title=TITLE, machine=here(2), cpu_limited=["B"])
    read = yaml.safe_load(text)
    assert read["env"] == [
        {"name": "A", "value": "2"},
        {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    assert read["resources"]["limits"]["cpu"] == read["resources"]["requests"]["cpu"] == "2"


@pytest.mark.parametrize("env", ENVS)
def test_python_runs_before_tensorflow(env: dict[str, str]) -> None:
    code = (
        emit(Deployment(env=env), Format.PYTHON, title=TITLE) + "import json, os\nprint(json.dumps(dict(os.environ)))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True)
    assert env.items() <= json.loads(done.stdout).items()


@pytest.mark.parametrize("env", ENVS)
def test_json(env: dict[str, str]) -> None:
    deployment = Deployment(env=env, arguments={"batch_size": 16}, cpus="0-3")
    read = json.loads(emit(deployment, Format.JSON, title=TITLE))
    assert read == {"env": env, "arguments": {"batch_size": 16}, "cpus": "0-3"}
    assert Deployment.from_dict(read) == deployment


@pytest.mark.parametrize("env", ENVS)
def test_docker_lines_by_the_dockerfile_reference(env: dict[str, str]) -> None:
    """ENV key="value": inside double quotes a backslash escapes the quote, the dollar sign and itself."""
    variables = {}
    for line in emit(Deployment(env=env), Format.DOCKER, title=TITLE).splitlines():
        if line.startswith("#"):
            continue
        name, value = re.fullmatch(r'ENV (\w+)="((?:[^"\\$]|\\.)*)"', line).groups()  # type: ignore[union-attr]
        variables[name] = re.sub(r"\\(.)", r"\1", value)
    assert variables == env


@pytest.mark.parametrize("env", ENVS)
def test_systemd_lines_by_the_manual(env: dict[str, str]) -> None:
    """systemd.exec(5): quoted assignments, C-style escapes, %% is a percent sign, $ has no meaning."""
    variables = {}
    for line in emit(Deployment(env=env), Format.SYSTEMD, title=TITLE).splitlines():
        if line.startswith("#"):
            continue
        name, value = re.fullmatch(r'Environment="(\w+)=((?:[^"\\]|\\.)*)"', line).groups()  # type: ignore[union-attr]
        assert "%" not in value.replace("%%", "")
        variables[name] = re.sub(r"\\(.)", r"\1", value).replace("%%", "%")
    assert variables == env


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own checker")
def test_systemd_reads_it(tmp_path: Path) -> None:
    unit = tmp_path / "made.service"
    lines = emit(Deployment(env=HOSTILE | PLAIN), Format.SYSTEMD, title=TITLE)
    unit.write_text(f"[Service]\nType=oneshot\nExecStart=/bin/true\n{lines}")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "Environment" not in done.stderr


@pytest.mark.parametrize("format_", [f for f in Format if f not in (Format.JSON, *SERVING)])
def test_the_batch_size_is_explained_and_the_title_stays_one_comment(format_: Format) -> None:
    lines = emit(Deployment(env=PLAIN, arguments={"batch_size": 16}), format_, title=TITLE, ways=WAYS).splitlines()
    assert lines[0] == "# tftune, study made: better than"
    assert "# Set the batch size in your own code: 16" in lines
    assert not any("BATCH" in line for line in lines)  # no variable carries it


TWO = Deployment(env={"A": "1$ 2"}, processes=2, cpu_sets=("0", "0"), streams=3)


def test_the_shell_starts_each_process_on_its_own_cpus() -> None:
    script = emit(TWO, Format.SH, title=TITLE)
    command = f"""{script}
tftune_instances sh -c 'echo "$TFTUNE_INSTANCE $A $(taskset -cp $$ | cut -d: -f2)"'"""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["0 1$ 2  0", "1 1$ 2  0"]
    assert "# Let 3 threads of your own code call the model at the same time." in script


def test_compose_has_a_service_for_each_process() -> None:
    services = yaml.safe_load(emit(TWO, Format.COMPOSE, title=TITLE))["services"]
    assert services.keys() == {"instance-0", "instance-1"}
    assert services["instance-1"]["cpuset"] == "0"
    assert services["instance-1"]["environment"] == {"A": "1$$ 2", "TFTUNE_INSTANCE": "1"}
    assert yaml.safe_load(emit(Deployment(env={"A": "1"}), Format.COMPOSE, title=TITLE)) == {
        "services": {"program": {"image": "YOUR_IMAGE", "environment": {"A": "1"}}}
    }


def test_kubernetes_keeps_whole_cpus_for_each_pod() -> None:
    text = emit(Deployment(processes=2, cpu_sets=("0-1", "2-3")), Format.K8S, title=TITLE)
    part = yaml.safe_load(text)
    assert part["resources"]["requests"]["cpu"] == part["resources"]["limits"]["cpu"] == "2"
    place = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    assert part["env"] == [{"name": "TFTUNE_INSTANCE", "valueFrom": place}]
    assert "# A pod each: a StatefulSet with replicas: 2, on nodes whose CPU manager is static." in text
    with_variables = yaml.safe_load(emit(TWO, Format.K8S, title=TITLE))
    assert [entry["name"] for entry in with_variables["env"]] == ["A", "TFTUNE_INSTANCE"]


def test_a_systemd_template_says_where_each_instance_goes() -> None:
    text = emit(TWO, Format.SYSTEMD, title=TITLE)
    unit = configparser.RawConfigParser(strict=False, comment_prefixes="#")
    unit.read_string(text)
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert 'Environment="TFTUNE_INSTANCE=%i"' in text
    assert 'Environment="TFTUNE_CPUS_1=0"' in text
    assert unit["Service"]["ExecStart"] == "/usr/bin/taskset -c ${TFTUNE_CPUS_%i} YOUR_PROGRAM"
    assert "systemctl start NAME@0 NAME@1" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own checker")
def test_systemd_reads_a_template(tmp_path: Path) -> None:
    unit = tmp_path / "made@.service"
    unit.write_text(emit(TWO, Format.SYSTEMD, title=TITLE).replace("YOUR_PROGRAM", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "made@1.service")], capture_output=True, text=True, check=False
    )
    assert "made@" not in done.stderr


def test_the_shell_ends_all_processes_with_itself_and_says_how_they_ended() -> None:
    script = emit(TWO, Format.SH, title=TITLE)
    failing = subprocess.run(["sh", "-c", f"{script}\ntftune_instances sh -c 'exit 3'"], check=False)
    assert failing.returncode == 3
    asleep = f"{script}\ntftune_instances sh -c 'echo $$; exec sleep 300'"
    runner = subprocess.Popen(["sh", "-c", f"{asleep}; exit 9"], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    pids = [int(runner.stdout.readline()) for _ in range(2)]
    function = next(child.pid for child in psutil.Process(runner.pid).children())
    os.kill(function, signal.SIGTERM)
    runner.communicate(timeout=20)
    assert wait_until(lambda: all(gone(pid) for pid in pids), 5)


def test_a_snippet_of_one_model_of_an_ensemble_names_it() -> None:
    for format_ in set(Format) - {Format.JSON}:
        assert "TFTUNE_MODEL" in emit(Deployment(env={"A": "1"}, name="vgg19"), format_, title=TITLE, ways=WAYS)


def test_python_takes_the_cpus_of_its_number() -> None:
    code = emit(TWO, Format.PYTHON, title=TITLE) + "print(os.sched_getaffinity(0))"
    env = {"TFTUNE_INSTANCE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "{0}\n"


def test_tensorflow_serving_is_given_flags_and_other_variables() -> None:
    """Run as the shell runs it, the server's own name standing for what prints its words."""
    text = emit(Deployment(env=PLAIN | AFFINITY), Format.TFSERVING, title=TITLE, ways=WAYS)
    server = 'tensorflow_model_server() { printf "%s\\n" "$@" "$KMP_AFFINITY" "${TF_NUM_INTRAOP_THREADS-unset}"; }'
    done = subprocess.run(
        ["sh", "-euc", f"{server}\nset -- --port=8500\n{text}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "--tensorflow_inter_op_parallelism=1",
        "--tensorflow_intra_op_parallelism=2",
        "--port=8500",
        AFFINITY["KMP_AFFINITY"],
        "unset",
    ]
    batched = Deployment(env=PLAIN, arguments={"batch_size": 16}, processes=2, cpu_sets=("0", "1"))
    lines = emit(batched, Format.TFSERVING, title=TITLE, ways=WAYS).splitlines()
    [batches] = [line for line in lines if "--enable_batching --batching_parameters_file=FILE" in line]
    assert "max_batch_size { value: 16 } batch_timeout_micros { value: 0 } num_batch_threads { value: 1 }" in batches
    assert "# Start 2 of it, each with a --port of its own, by: taskset -c 0, taskset -c 1." in lines
    assert not any("your own code" in line for line in lines)
    for format_ in SERVING:
        with pytest.raises(BadInputError, match="TensorFlow Serving is for TensorFlow's settings"):
            emit(Deployment(), format_, title=TITLE)


def served(deployment: Deployment, **options: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the batching file and the Deployment of TensorFlow Serving in Kubernetes, and its container."""
    text = emit(deployment, Format.TFSERVING_K8S, title=TITLE, ways=WAYS, **{"model": "ResNet 50", **options})
    *configs, manifest = yaml.safe_load_all(text)
    file = "".join(config["data"]["batching.config"] for config in configs)
    pairs = [
        re.fullmatch(r"(\w+)(?: \{ value: (\d+) \}|: (\d+))", line) for line in file.splitlines() if line[0] != "#"
    ]
    read: dict[str, str] = {}
    for pair in pairs:
        assert pair is not None  # protobuf's text format, as BatchingParameters is read
        read[pair[1]] = f"{read[pair[1]]},{pair[3]}" if pair[1] in read else pair[2] or pair[3]
    return read, manifest


def test_tensorflow_serving_in_kubernetes_is_complete() -> None:
    """Its flags, its batching file, and the CPUs and the memory that were measured."""
    deployment = Deployment(env=PLAIN | AFFINITY, arguments={"batch_size": 48}, streams=2)
    batching, manifest = served(deployment, machine=here(32, quota=4), memory_bytes=1000 * 2**20)
    assert batching == {
        "max_batch_size": "48",
        "batch_timeout_micros": "0",
        "num_batch_threads": "2",
        "max_enqueued_batches": "10",
        "allowed_batch_sizes": "1,2,4,8,16,32,48",
    }
    spec = manifest["spec"]
    assert spec["replicas"] == 1
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == {"app": "resnet-50"}
    [container] = spec["template"]["spec"]["containers"]
    assert container["args"] == [
        "--tensorflow_inter_op_parallelism=1",
        "--tensorflow_intra_op_parallelism=2",
        "--enable_batching",
        "--batching_parameters_file=/etc/batching/batching.config",
        "--grpc_max_threads=192",
        "--rest_api_num_threads=192",
    ]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert env == {"MODEL_NAME": "resnet-50", **AFFINITY}
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "4", "memory": "1250Mi"}
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    assert volumes["batching"]["configMap"]["name"] == "resnet-50-batching"


@pytest.mark.parametrize(
    ("batching", "read"),
    [
        (Batching(max_batch_size=1), ("1", "0", "1", "128", "1")),
        (Batching(max_batch_size=8, timeout_us=2500, threads=4, enqueued=3), ("8", "2500", "4", "3", "1,2,4,8")),
    ],
)
def test_what_was_measured_of_batches_is_in_the_batching_file(batching: Batching, read: tuple[str, ...]) -> None:
    file, _ = served(Deployment(env=PLAIN), batching=batching)
    assert tuple(file.values()) == read
    text = emit(Deployment(), Format.TFSERVING_K8S, title=TITLE, ways=WAYS, batching=batching)
    assert ("docs/serve_rest.py shows whether a wait is better" in text) == (batching.timeout_us is None)


def test_tensorflow_serving_in_kubernetes_takes_what_else_there_is() -> None:
    """Several processes are replicas, CPUs that follow the limit are a variable, XLA has a flag of its own."""
    _, several = served(Deployment(env=PLAIN, processes=2, cpu_sets=("0", "1")), machine=here(2))
    assert several["spec"]["replicas"] == 2
    [container] = several["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["cpu"] == "1"
    _, limited = served(Deployment(env=PLAIN), machine=here(2), cpu_limited=["TF_NUM_INTRAOP_THREADS"])
    [container] = limited["spec"]["template"]["spec"]["containers"]
    assert "--tensorflow_intra_op_parallelism=$(TF_NUM_INTRAOP_THREADS)" in container["args"]
    assert {"resourceFieldRef": {"resource": "limits.cpu"}} in [each.get("valueFrom") for each in container["env"]]
    batching, compiled = served(Deployment(env={"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}), model="50")
    [container] = compiled["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--xla_cpu_compilation_enabled"]
    assert (batching, compiled["metadata"]["name"]) == ({}, "model-50")
    assert served(Deployment(), model="")[1]["metadata"]["name"] == "model"


@pytest.mark.parametrize("path", sorted((ROOT / "tests/data/studies").glob("*.json")), ids=lambda path: path.stem)
def test_kubernetes_takes_the_manifest_of_a_stored_study(path: Path) -> None:
    """By the schemas that it publishes; with the memory that the finals saw, and no more CPUs than were measured."""
    study = tuner.Study(msgspec.json.decode(path.read_bytes(), type=StudyResult))
    for instances in (False,) if study.result.groups is None else (False, True):
        text = study.emit("tfserving-k8s", instances=instances)
        _, manifest = documents = list(yaml.safe_load_all(text))
        for document in documents:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        resources = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
        assert float(resources["limits"]["cpu"]) * manifest["spec"]["replicas"] <= study.result.machine.logical_cpus
        assert re.fullmatch(r"[1-9]\d+Mi", resources["limits"]["memory"])


def test_no_more_batches_wait_than_a_limit_leaves_time_for() -> None:
    """The calls in the finals say how long a batch takes; those of --rate have waited already."""
    stored = (ROOT / "tests/data/studies/mobilenetv2-decided.json").read_bytes()
    study = msgspec.json.decode(stored, type=StudyResult)
    assert study.finals is not None
    tail = study.finals.tails["incumbent"]
    call_s = (tail.p99 or tail.p50 or 0.0) / 1000

    def enqueued(limit_s: float, rate: float | msgspec.UnsetType = msgspec.UNSET) -> str | None:
        workload = structs.replace(study.workload, rate=rate)
        limited = structs.replace(study, limits=Limits(p99_s=limit_s), workload=workload)
        found = re.search(r"max_enqueued_batches { value: (\d+) }", tuner.Study(limited).emit("tfserving-k8s"))
        return None if found is None else found[1]

    assert [enqueued(each * call_s) for each in (0.5, 1.5, 4.5)] == ["1", "1", "3"]
    assert enqueued(4.5 * call_s, 20.0) == "128"


def test_batches_are_those_that_carry_most_under_load() -> None:
    """A batch of 4 takes 40 ms of two processes that answer 200 requests per second, so that 3 more fit into 160 ms."""
    stored = (ROOT / "tests/data/studies/resnet50-processes.json").read_bytes()
    study = msgspec.json.decode(stored, type=StudyResult)
    assert study.groups is not None
    advice = study.groups.recommended
    setting = {**advice.setting, "batch_size": 32}
    curve = SimpleNamespace(
        setting=setting, max_batch=4, batch_wait_ms=2.5, saturation=200.0, peak_memory_bytes=8 << 30
    )
    other = SimpleNamespace(setting={**setting, "intra_op": 7}, max_batch=9, batch_wait_ms=9.0, saturation=9.0)

    def written(load: Any) -> str:
        return studycard.snippet(study, advice, Format.TFSERVING_K8S, load=load)

    def file(load: Any) -> list[str]:
        text = written(load)
        return re.findall(r"(?:max_batch_size|micros|enqueued_batches) { value: (\d+) }", text)

    assert file(SimpleNamespace(limit_ms=160.0, curves=(other, curve))) == ["4", "2500", "3"]
    assert file(SimpleNamespace(limit_ms=160.0, curves=(other,))) == file(None) == ["8", "0", "16"]
    assert file(SimpleNamespace(limit_ms=None, curves=(curve,))) == file(None)
    assert "memory: 5120Mi" in written(SimpleNamespace(limit_ms=None, curves=(curve,)))  # of 4 GiB each


def test_of_a_command_only_the_largest_process_is_known_and_no_memory_is_emitted() -> None:
    stored = (ROOT / "tests/data/studies/resnet50-processes.json").read_bytes()
    study = msgspec.json.decode(stored, type=StudyResult)
    assert study.recommended is not None
    assert "memory: YOUR_MEMORY" not in studycard.snippet(study, study.recommended, Format.K8S)
    study = structs.replace(study, objective=Objective.MAXIMIZE)
    assert "memory: YOUR_MEMORY" in studycard.snippet(study, study.recommended, Format.K8S)


def test_kubernetes_is_given_the_measured_memory_and_a_quarter_more() -> None:
    text = emit(Deployment(env=PLAIN), Format.K8S, title=TITLE, machine=here(2), memory_bytes=1.1 * 2**30)
    assert yaml.safe_load(text)["resources"]["limits"]["memory"] == "1408Mi"
    assert "# Memory: the peak of a process, 1.10 GiB, and a quarter more." in text


def test_python_names_the_calls_of_the_framework() -> None:
    text = emit(Deployment(env=PLAIN), Format.PYTHON, title=TITLE, ways=WAYS)
    assert "tf.config.threading.set_intra_op_parallelism_threads(2)" in text


def test_what_a_snippet_says_of_itself_are_comments() -> None:
    facts = ["1.12× [1.05, 1.19] the speed of the defaults", "Measured on 2 cores"]
    for format_ in set(Format) - {Format.JSON}:
        lines = emit(Deployment(env=PLAIN), format_, title=TITLE, facts=facts, ways=WAYS).splitlines()
        assert lines[1:3] == [f"# {fact}" for fact in facts]


def test_kubernetes_is_asked_for_the_cpus_that_were_measured_on() -> None:
    read = yaml.safe_load(emit(Deployment(env=PLAIN), Format.K8S, title=TITLE, machine=here(2)))
    assert read["resources"]["requests"]["cpu"] == read["resources"]["limits"]["cpu"] == "2"


FOUR = Deployment(env=PLAIN, processes=4, cpu_sets=("0-7", "8-15", "16-23", "24-31"))
PINNED = Deployment(env=PLAIN, cpus="0-15")


@pytest.mark.parametrize(
    ("deployment", "machine", "cpus"),
    [
        (FOUR, here(32, quota=4), "1"),  # the quota of all four together, and not the width of a set
        (PINNED, here(32, quota=4), "4"),
        (PINNED, here(32), "16"),
        (FOUR, here(32), "8"),
        (Deployment(env=PLAIN), here(32, quota=2.5), "2.5"),  # not three
        (Deployment(env=PLAIN), here(4, of=32), "4"),
        (Deployment(env=PLAIN, processes=3, cpu_sets=("0", "1", "2")), here(3, of=8, quota=1), "0.333"),
        (Deployment(env=PLAIN, processes=4), here(8), "2"),  # those that are not kept apart share the CPUs
    ],
)
def test_kubernetes_is_asked_for_no_more_than_was_measured(deployment: Deployment, machine: Machine, cpus: str) -> None:
    read = yaml.safe_load(emit(deployment, Format.K8S, title=TITLE, machine=machine))
    assert read["resources"]["requests"]["cpu"] == read["resources"]["limits"]["cpu"] == cpus


def test_a_part_of_a_cpu_asks_for_no_static_cpu_manager() -> None:
    whole, part = (emit(FOUR, Format.K8S, title=TITLE, machine=here(32, quota=quota)) for quota in (4, 2))
    assert "on nodes whose CPU manager is static" in whole
    assert "CPU manager" not in part


def test_compose_carries_the_limit_of_each_service() -> None:
    def services(deployment: Deployment, machine: Machine) -> list[dict[str, object]]:
        text = emit(deployment, Format.COMPOSE, title=TITLE, machine=machine)
        return list(yaml.safe_load(text)["services"].values())

    assert [each["cpus"] for each in services(FOUR, here(32, quota=4))] == [1, 1, 1, 1]
    assert [each["cpus"] for each in services(PINNED, here(32, quota=2.5))] == [2.5]
    [masked] = services(Deployment(env=PLAIN), here(4, of=32))
    assert (masked["cpuset"], "cpus" in masked) == ("0-3", False)
    assert "cpus" not in services(PINNED, here(32))[0]
    [nothing] = services(Deployment(env=PLAIN), here(32))
    assert nothing.keys() == {"image", "environment"}
    members = (Deployment(name="a", env=PLAIN, cpus="0-2"), Deployment(name="b", env=PLAIN, cpus="3"))
    ensemble = services(Deployment(processes=2, members=members), here(4, quota=2))
    assert [each["cpus"] for each in ensemble] == [1.5, 0.5]


def test_systemd_carries_the_limit_of_each_unit() -> None:
    def lines(deployment: Deployment, machine: Machine) -> list[str]:
        return emit(deployment, Format.SYSTEMD, title=TITLE, machine=machine).splitlines()

    assert "CPUQuota=100%" in lines(FOUR, here(32, quota=4))
    assert {"CPUQuota=250%", "CPUAffinity=0-15"} <= set(lines(PINNED, here(32, quota=2.5)))
    assert "CPUQuota=33.3%" in lines(Deployment(env=PLAIN, processes=3), here(8, quota=1))
    assert "CPUAffinity=0-3" in lines(Deployment(env=PLAIN), here(4, of=32))
    assert not any(line.startswith("CPU") for line in lines(Deployment(env=PLAIN), here(32)))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own checker")
def test_systemd_reads_the_limit(tmp_path: Path) -> None:
    unit = tmp_path / "made.service"
    lines = emit(PINNED, Format.SYSTEMD, title=TITLE, machine=here(32, quota=2.5))
    unit.write_text(f"[Service]\nExecStart=/bin/true\n{lines}")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "made.service" not in done.stderr


def test_an_image_cannot_limit_itself_so_that_a_comment_says_how() -> None:
    text = emit(FOUR, Format.DOCKER, title=TITLE, machine=here(32, quota=4))
    assert "# Each container needs no more than was measured: docker run --cpus=1" in text
    masked = emit(Deployment(env=PLAIN), Format.DOCKER, title=TITLE, machine=here(4, of=32))
    assert "docker run --cpuset-cpus=0-3" in masked
    assert "docker run" not in emit(Deployment(env=PLAIN), Format.DOCKER, title=TITLE, machine=here(32))


def test_snippets_of_several_processes_say_that_their_cores_are_unlike() -> None:
    machine = replace(here(2), cores=["0", "1"], core_kinds=[0, 1])
    two = Deployment(env=PLAIN, processes=2, cpu_sets=("0", "1"))
    words = "# The cores of the processes are unlike: faster on CPUs 0, slower on CPUs 1"
    for format_ in set(Format) - {Format.JSON}:
        assert words in emit(two, format_, title=TITLE, ways=WAYS, machine=machine)
        assert "unlike" not in emit(two, format_, title=TITLE, ways=WAYS, machine=here(2))


def test_one_model_of_an_ensemble_is_given_its_share() -> None:
    members = (Deployment(name="a", env=PLAIN, cpus="0-2"), Deployment(name="b", env=PLAIN, cpus="3"))
    apart = Deployment(processes=2, members=members)
    shared = Deployment(processes=2, members=(Deployment(name="a", env=PLAIN), Deployment(name="b", env=PLAIN)))

    def cpus(whole: Deployment, machine: Machine) -> str:
        text = emit(whole.members[0], Format.K8S, title=TITLE, machine=machine, whole=whole)
        return str(yaml.safe_load(text)["resources"]["limits"]["cpu"])

    assert cpus(apart, here(4, quota=2)) == "1.5"
    assert cpus(apart, here(4)) == "3"
    assert cpus(shared, here(8)) == "4"
    assert cpus(shared, here(8, quota=2)) == "1"
    unit = emit(apart.members[0], Format.SYSTEMD, title=TITLE, machine=here(4), whole=apart)
    assert "CPUQuota" not in unit  # none was measured


NO_SETTING = Deployment()


@pytest.mark.parametrize(
    ("machine", "compose", "systemd", "docker"),
    [
        (here(32, quota=1.5), {"cpus": 1.5}, ["CPUQuota=150%"], "docker run --cpus=1.5"),
        (here(2, quota=0.3), {"cpus": 0.3}, ["CPUQuota=30%"], "docker run --cpus=0.3"),
        (here(1, of=2), {"cpuset": "0"}, ["CPUAffinity=0"], "docker run --cpuset-cpus=0"),
        (here(2), {}, [], ""),
    ],
)
def test_the_defaults_are_kept_under_the_limit_that_they_were_measured_under(
    machine: Machine, compose: dict[str, object], systemd: list[str], docker: str
) -> None:
    """They take their threads from the CPUs that they see."""

    def written(format_: Format) -> str:
        return emit(NO_SETTING, format_, title=TITLE, machine=machine)

    service = yaml.safe_load(written(Format.COMPOSE))["services"]["program"]
    assert service == {"image": "YOUR_IMAGE", **compose}
    assert [line for line in written(Format.SYSTEMD).splitlines() if not line.startswith("#")] == systemd
    assert docker in written(Format.DOCKER)
    assert ("docker run" in written(Format.DOCKER)) == bool(docker)
    read = yaml.safe_load(written(Format.K8S))
    n_cpus = min(machine.logical_cpus, machine.cpu_quota or machine.logical_cpus)
    assert read["env"] == []
    assert read["resources"]["requests"]["cpu"] == read["resources"]["limits"]["cpu"] == f"{n_cpus:g}"


INHERITED = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --x"}


@pytest.mark.parametrize("format_", list(Format))
@pytest.mark.parametrize("own", [PLAIN, NOTHING])
def test_what_the_measurement_inherited_is_set_in_every_format(format_: Format, own: dict[str, str]) -> None:
    text = emit(Deployment(env=own).under(INHERITED), format_, title=TITLE, ways=WAYS)
    [line] = [line for line in text.splitlines() if "--tf_xla_auto_jit=2 --x" in line]
    assert not line.startswith("#")
    assert ("# Keep the defaults: there is nothing to set but the variables" in text) == (
        not own and format_ is not Format.JSON
    )


def test_what_is_set_goes_before_what_was_inherited() -> None:
    members = (Deployment(name="a", env=PLAIN), Deployment(name="b"))
    deployment = Deployment(processes=2, members=members).under({"A": "1", "TF_NUM_INTEROP_THREADS": "7"})
    assert deployment.of(0).env == {"A": "1", **PLAIN}
    assert deployment.of(0).inherited == ("A",)
    assert deployment.of(1).inherited == ("A", "TF_NUM_INTEROP_THREADS")
    services = yaml.safe_load(emit(deployment, Format.COMPOSE, title=TITLE))["services"]
    assert [service["environment"]["A"] for service in services.values()] == ["1", "1"]
    assert Deployment.from_dict(deployment.to_dict()) == deployment
    assert not Deployment().under({"A": "1"})  # nothing is recommended


@pytest.mark.parametrize("command", ["emit", "recommend"])
def test_the_help_names_all_formats(call: Call, command: str) -> None:
    _, out, _ = call(command, "--help")
    assert f"--format {'|'.join(name for name in Format if name != Format.JSON)}" in " ".join(out.split())
