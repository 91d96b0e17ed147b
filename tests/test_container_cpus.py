"""A container's CPUs: whatever is recommended, no format asks for more of them than were measured."""

from __future__ import annotations

import configparser
import functools
import json
import os
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import test_coresets, test_ensembles
from tests.frameworks import STOCK, WAYS, load, read_space, resolve
from tuner.deploy import program
from tuner.machine.coresets import are_shared
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.machine.spec import parse_spec
from tuner.report.emit import Format, emit
from tuner.space.deployment import Deployment

QUOTAS = (None, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0, 6.5, 12.0, 31.999)
NODES = ("cores=32", "sockets=2,cores=28,smt=2", "sockets=2,cores=28", "cores=2", "cores=1", "cores=4,smt=2")
CAPTURED = ("x86_64-64cpu", "vmware_fpe", "x86_64-dell_e4310")
ENSEMBLE = "lenet5+mlp"
VERSION = "1.34"  # of Kubernetes


@functools.cache
def node(name: str) -> Machine:
    """Return a machine that is described, or was captured."""
    if name not in CAPTURED:
        return parse_spec(name).machine()
    with tempfile.TemporaryDirectory() as folder:
        return test_coresets.capture(name, Path(folder))


def limited(name: str, quota: float | None) -> Machine:
    """Return a container with a quota on a node."""
    machine = node(name)
    return replace(machine, cpu_quota=quota if quota is not None and quota < machine.logical_cpus else None)


@functools.cache
def deployments(name: str, quota: float | None) -> list[Deployment]:
    """Return what applies settings of one process, of several, and of an ensemble, there."""
    machine = limited(name, quota)
    workload = load("resnet50")
    space = resolve(
        read_space("quick", machine), machine=machine, build=STOCK, workload=workload, batch_sizes=[8], with_groups=True
    )
    settings = [*space.baselines.values(), *space.groups, *space.points[:: max(1, len(space.points) // 20)]]
    ensemble = test_ensembles.space_of(machine, ENSEMBLE)
    points = [*ensemble.baselines.values(), *ensemble.points[:: max(1, len(ensemble.points) // 20)]]
    return [*map(space.deployment, settings), *map(ensemble.deployment, points)]


def union(lists: list[str]) -> int:
    """Return how many CPUs lists name together."""
    return len(frozenset[int]().union(*map(parse_list, lists)))


def of_kubernetes(text: str, deployment: Deployment) -> list[float]:
    """Return the CPUs of all pods: of those with a process each, and of one pod with all, where that is written."""
    each = yaml.safe_load(text)["resources"]
    assert each["requests"] == each["limits"]
    found = [deployment.processes * float(each["limits"]["cpu"])]
    if deployment.processes > 1:
        one_pod = "\n".join(re.findall(r"^#   (.*)$", text, re.MULTILINE))
        found.append(float(yaml.safe_load(one_pod)["resources"]["limits"]["cpu"]))
    return found


def asked_for(format_: Format, text: str, deployment: Deployment, machine: Machine) -> list[float]:
    """Return how many CPUs what is written may keep busy; those of the machine where nothing limits it."""
    here = min(machine.logical_cpus, machine.cpu_quota or machine.logical_cpus)
    match format_:
        case Format.K8S:
            return of_kubernetes(text, deployment)
        case Format.TFSERVING_K8S:
            of_server = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")["spec"]
            [server] = of_server["template"]["spec"]["containers"]
            return [of_server["replicas"] * float(server["resources"]["limits"]["cpu"])]
        case Format.COMPOSE:
            services = yaml.safe_load(text)["services"].values()
            assert len(services) == deployment.processes
            sets = [each["cpuset"] for each in services if "cpuset" in each]
            shares = [each["cpus"] for each in services if "cpus" in each]
            assert len(shares) in (0, len(services))
            return [sum(shares) if shares else union(sets) if len(sets) == len(services) else here]
        case Format.SYSTEMD:
            quotas = re.findall(r"^CPUQuota=(.*)%$", text, re.MULTILINE)
            sets = re.findall(r'^(?:CPUAffinity=|Environment="TFTUNE_CPUS_\d+=)([\d,-]+)"?$', text, re.MULTILINE)
            return [deployment.processes * float(quotas[0]) / 100 if quotas else union(sets) if sets else here]
        case Format.DOCKER:
            shares = re.findall(r"--cpus=([\d.]+)", text)
            return [deployment.processes * float(shares[0]) if shares else here]
        case Format.JSON:
            read = Deployment.from_dict(json.loads(text))
            sets = [cpus for number in range(read.processes) if (cpus := read.cpus_of(number)) is not None]
            return [union(sets) if len(sets) == read.processes and machine.cpu_quota is None else here]
        case _:  # it runs where it was measured, under the same quota
            return [min(here, union(re.findall(r"taskset -c ([\d,-]+)", text)) or here)]


@given(st.data())
@pytest.mark.parametrize("name", [*NODES, *CAPTURED])
def test_no_format_asks_for_more_cpus_than_were_measured(name: str, data: st.DataObject) -> None:
    quota = data.draw(st.sampled_from(QUOTAS))
    machine = limited(name, quota)
    on_a_core = Deployment(env={"A": "1"}, cpus=machine.cores[0])
    by_hand = [on_a_core, replace(on_a_core, processes=3), Deployment(processes=3)]  # which share what they have
    whole = data.draw(st.sampled_from([*by_hand, *deployments(name, quota)]))
    measured = min(machine.logical_cpus, machine.cpu_quota or machine.logical_cpus)
    parts = [whole, *whole.members]
    total: dict[Format, float] = dict.fromkeys(Format, 0.0)
    for deployment in parts:
        for format_ in Format:
            if deployment.members and format_ not in (Format.SH, Format.COMPOSE, Format.JSON):
                continue
            of = whole if deployment.name else None
            text = emit(deployment, format_, title="made", machine=machine, ways=WAYS, whole=of)
            found = asked_for(format_, text, deployment, machine)
            assert all(0 < n <= measured + 1e-9 for n in found), (format_, text)
            total[format_] += found[0] if deployment.name else 0.0
    assert total[Format.K8S] <= measured + 1e-9  # of all members of an ensemble
    if machine.cpu_quota is not None:
        assert max(total[Format.SYSTEMD], total[Format.DOCKER]) <= measured + 1e-9


@given(st.data())
@pytest.mark.parametrize("name", [*NODES, *CAPTURED])
def test_several_processes_that_share_a_quota_own_no_cores_of_the_node(name: str, data: st.DataObject) -> None:
    quota = data.draw(st.sampled_from(QUOTAS))
    machine = limited(name, quota)
    deployment = data.draw(st.sampled_from([each for each in deployments(name, quota) if each.processes > 1] or [None]))
    if deployment is None or not are_shared(machine.cores, machine.cpu_quota):
        return
    assert {deployment.cpus_of(number) for number in range(deployment.processes)} == {None}
    threads = [deployment.of(number).env.get("TF_NUM_INTRAOP_THREADS", "1") for number in range(deployment.processes)]
    if not deployment.members:
        assert sum(map(int, threads)) <= max(machine.usable_cpus, deployment.processes)
        assert deployment.processes <= machine.usable_cpus
    for format_ in set(Format) - {Format.PYTHON} if not deployment.members else {Format.SH, Format.COMPOSE}:
        text = emit(deployment, format_, title="made", machine=machine, ways=WAYS)
        assert not re.search(r"taskset|CPUAffinity|cpuset|TFTUNE_CPUS", text)


EXPECTED = [
    # limit, processes, what each one has, and all of them
    (2, 2, 1, 2),
    (4, 4, 1, 4),
    (4, 2, 2, 4),
    (6.5, 7, 0.928, 6.5),
    (6.5, 2, 3.25, 6.5),
    (12, 12, 1, 12),
    (12, 6, 2, 12),
    (12, 3, 4, 12),
]


@pytest.mark.parametrize(("quota", "n", "each", "whole"), EXPECTED)
@pytest.mark.parametrize("name", ["cores=32", "sockets=2,cores=28,smt=2", "x86_64-64cpu"])
def test_what_each_format_says_of_a_limit_on_a_large_node(
    name: str, quota: float, n: int, each: float, whole: float
) -> None:
    machine = limited(name, quota)
    [deployment] = {
        (d.processes, *d.env.items()): d for d in deployments(name, quota) if d.processes == n and not d.members
    }.values()
    assert deployment.cpu_sets == ()
    assert int(deployment.env["TF_NUM_INTRAOP_THREADS"]) == max(1, machine.usable_cpus // n)

    def written(format_: Format) -> str:
        return emit(deployment, format_, title="made", machine=machine, ways=WAYS)

    assert of_kubernetes(written(Format.K8S), deployment) == pytest.approx([n * each, whole])
    assert f"a StatefulSet with replicas: {n}." in written(Format.K8S)
    services = yaml.safe_load(written(Format.COMPOSE))["services"]
    assert [(service["cpus"], "cpuset" in service) for service in services.values()] == [(each, False)] * n
    unit = configparser.RawConfigParser(strict=False, comment_prefixes="#")
    unit.read_string(written(Format.SYSTEMD))
    assert float(unit["Service"]["CPUQuota"].rstrip("%")) == pytest.approx(100 * each)
    assert unit["Service"]["ExecStart"] == "YOUR_PROGRAM"
    assert 'Environment="TFTUNE_INSTANCE=%i"' in written(Format.SYSTEMD)
    assert f"docker run --cpus={each:g}" in written(Format.DOCKER)
    assert written(Format.SH).count('"$@" & pids') == n
    assert [copy.cpus for copy in program.copies(deployment, ["serve"])] == [None] * n


def test_the_members_of_an_ensemble_share_a_quota_by_their_cores() -> None:
    machine = limited("cores=32", 4)
    space = test_ensembles.space_of(machine, ENSEMBLE)
    uneven = next(p for p in space.points if (p["cores_lenet5"], p["cores_mlp"]) == (3, 1))
    deployment = space.deployment(uneven)
    assert [(each.cpus, each.share) for each in deployment.members] == [(None, 3), (None, 1)]
    services = yaml.safe_load(emit(deployment, Format.COMPOSE, title="made", machine=machine))["services"]
    assert [service["cpus"] for service in services.values()] == [3, 1]
    one = yaml.safe_load(emit(deployment.members[1], Format.K8S, title="made", machine=machine, whole=deployment))
    assert one["resources"]["limits"]["cpu"] == "1"
    owned = test_ensembles.space_of(node("cores=4"), ENSEMBLE)
    assert [(each.cpus, each.share) for each in owned.deployment(uneven).members] == [("0-2", 0), ("3", 0)]


# ---- where a program runs --------------------------------------------------------------------------------------------


def in_container(monkeypatch: pytest.MonkeyPatch, name: str, cpus: str | None, quota: float | None) -> None:
    """Let `run` find itself on some CPUs of a node, under a quota."""
    machine = node(name)
    mask = parse_list(machine.affinity if cpus is None else cpus)
    cores = [core for core in machine.cores if parse_list(core) <= mask]
    here = replace(machine, cores=cores, physical_cores=len(cores), logical_cpus=len(mask), cpu_quota=quota)
    monkeypatch.setattr(program, "detect", lambda: replace(here, numa_nodes={"0": cpus or machine.affinity}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: mask)


TWO = Deployment(processes=2, cpu_sets=("0-1", "2-3"))


@pytest.mark.parametrize(
    ("cpus", "quota", "own", "says"),
    [
        (None, None, TWO.cpu_sets, ""),
        ("0-3", 4.0, TWO.cpu_sets, ""),
        ("8-11", 4.0, ("8-9", "10-11"), "kept to CPUs 8-9 | 10-11 here"),  # a static CPU manager has given others
        (None, 4.0, (), "kept to no cores, as a CPU quota is less than all here"),
        ("8", None, TWO.cpu_sets, ""),  # too few: it is refused below
    ],
)
def test_copies_are_kept_to_cores_that_are_theirs(
    cpus: str | None, quota: float | None, own: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_container(monkeypatch, "cores=32", cpus, quota)
    placed, notes = program.placed(TWO)
    assert placed.cpu_sets == own
    told = [note.partition(", and were to 0-1 | 2-3 in")[0] for note in notes]
    assert told == ([f"the copies are {says}"] if says else [])


# ---- numbers of copies -----------------------------------------------------------------------------------------------


def test_more_than_ten_copies_have_a_number_and_a_port_each() -> None:
    n = 12
    many = Deployment(processes=n, cpu_sets=tuple(map(str, range(n))))
    numbers = [str(number) for number in range(n)]
    ports = [str(8500 + number) for number in range(n)]
    words = [copy.words for copy in program.copies(replace(many, cpu_sets=()), ["serve", "{8500+instance}"])]
    assert [port for _, port in words] == ports
    services = yaml.safe_load(emit(many, Format.COMPOSE, title="made"))["services"]
    assert list(services) == [f"instance-{number}" for number in numbers]
    assert [each["environment"]["TFTUNE_INSTANCE"] for each in services.values()] == numbers

    def printed(shell: str) -> str:
        return subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout.strip()

    unit = emit(many, Format.SYSTEMD, title="made")
    assert f"systemctl start {' '.join(f'NAME@{number}' for number in numbers)}" in unit
    assert dict(re.findall(r'"TFTUNE_CPUS_(\d+)=(\d+)"', unit)) == dict(zip(numbers, numbers, strict=True))
    [program_with_port] = re.findall(r"/bin/sh -c '(exec YOUR_PROGRAM .*)' for", unit)
    of_last = program_with_port.replace("%i", "11").replace("$$", "$").replace("exec YOUR_PROGRAM", "echo")
    assert printed(of_last) == "--port 8511"
    script = emit(replace(many, cpu_sets=()), Format.SH, title="made")
    [command] = re.findall(r"# For a port each: (.*)", script)
    assert sorted(printed(f"{script}\n{command.replace('python serve.py', 'echo')}").split()[1::2]) == sorted(ports)


# ---- Kubernetes' own schemas -----------------------------------------------------------------------------------------


def manifest(kind: str, replicas: int, container: dict[str, Any]) -> dict[str, Any]:
    """Return a whole manifest around what is written for a container."""
    labels = {"app": "made"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "made", "image": "made:1", **container}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    spec |= {"serviceName": "made"} if kind == "StatefulSet" else {}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "made"}, "spec": spec}


@pytest.mark.parametrize("quota", [0.5, 1.5, 4, 6.5, None])
def test_kubernetes_takes_both_ways_to_deploy_several_processes(quota: float | None) -> None:
    for deployment in deployments("cores=32", quota):
        if deployment.members:
            continue
        text = emit(deployment, Format.K8S, title="made", machine=limited("cores=32", quota))
        written = text.replace("YOUR_MEMORY", "2Gi")
        kind = "StatefulSet" if deployment.processes > 1 else "Deployment"
        kubernetes_validate.validate(
            manifest(kind, deployment.processes, yaml.safe_load(written)), VERSION, strict=True
        )
        if deployment.processes > 1:
            one_pod = yaml.safe_load("\n".join(re.findall(r"^#   (.*)$", written, re.MULTILINE)))
            kubernetes_validate.validate(manifest("Deployment", 1, one_pod), VERSION, strict=True)
    wrong = manifest("Deployment", 1, {"resources": {"limit": {"cpu": "1"}}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)
