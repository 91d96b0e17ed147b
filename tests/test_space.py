"""Knobs, settings, expressions, space files and what they resolve to."""

from __future__ import annotations

import ast
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.conftest import DATA, setting
from tests.frameworks import CATALOGUE, read_space, resolve, subject
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.build import describe, is_off_by_default
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.frameworks.tensorflow.knobs import KNOBS
from tuner.machine.host import Machine
from tuner.report import terminal
from tuner.space import spacefile
from tuner.space.deployment import Deployment
from tuner.space.expression import Expression
from tuner.space.space import Space
from tuner.study.subject import KnobFacts
from tuner.workload.workload import Workload

GOOD = sorted((DATA / "spaces/good").glob("*.toml"))
BAD = sorted((DATA / "spaces/bad").glob("*.toml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-7 // 2", -4),
        ("max(1, a // b)", 1),
        ("a < b < 5", 1),
        ("a >= b or word == 'x'", 1),
        ("not a", 0),
        ("min(a, b) % 2", 1),
        ("word != 1", 1),
    ],
)
def test_expressions(text: str, value: int) -> None:
    assert Expression(text).value({"a": 1, "b": 3, "word": "x"}) == value


@given(st.integers(-50, 50), st.integers(-50, 50), st.sampled_from(["+", "-", "*", "//", "%", "<", "<=", "==", "!="]))
def test_expressions_agree_with_python(a: int, b: int, op: str) -> None:
    text = f"({a}) {op} ({b})"
    if b == 0 and op in ("//", "%"):
        with pytest.raises(BadInputError, match="divides by zero"):
            Expression(text).value({})
    else:
        assert Expression(text).value({}) == eval(compile(ast.parse(text, mode="eval"), "", "eval"))


@pytest.mark.parametrize(
    "text", ["a.b", "a[0]", "f(1)", "lambda: 1", "2 ** 9", "1.5", "'a' < 1", "[1]", "a := 1", "1 +", ""]
)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(BadInputError):
        Expression(text).value({"a": 1})


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_files(path: Path, machine: Machine) -> None:
    assert read_space(str(path), machine).domains


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_give_one_line_that_names_the_file_and_the_place(path: Path, machine: Machine) -> None:
    expected = next(line for line in path.read_text().splitlines() if line.startswith("# expect: "))
    with pytest.raises(BadInputError) as caught:
        read_space(str(path), machine)
    assert expected.removeprefix("# expect: ") in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_forms_resolve(machine: Machine) -> None:
    file = read_space(str(DATA / "spaces/good/all_forms.toml"), machine)
    assert file.domains["inter_op"] == (1, 2, 4)
    assert file.domains["intra_op"] == (1, 2, 3, 4, 8, 16)
    assert file.domains["kmp_affinity"] == ("none", "granularity=fine,compact,1,0")


def test_every_shipped_space_says_what_it_is_for_and_resolves(
    machine: Machine, stock: Build, openmp: Build, resnet50: Workload
) -> None:
    for name in spacefile.names(FRAMEWORK.spaces):
        file = read_space(name, machine)
        assert (Path("search_spaces") / f"{name}.toml").read_text().startswith("# ")
        for runtime in (stock, openmp):
            assert resolve(file, machine=machine, build=runtime, workload=resnet50).points


def test_a_stock_wheel_switches_the_openmp_knobs_off_with_the_reason(space: Space) -> None:
    assert set(space.inactive) == {"omp_num_threads", "kmp_affinity", "kmp_blocktime"}
    assert all("runtime:threadpool" in reason and "\n" not in reason for reason in space.inactive.values())
    assert list(space.domains) == ["inter_op", "intra_op", "batch_size"]


def test_an_openmp_build_has_all_knobs(machine: Machine, openmp: Build, resnet50: Workload) -> None:
    space = resolve(read_space("cpu", machine), machine=machine, build=openmp, workload=resnet50)
    assert space.inactive == {}
    assert list(space.domains) == [knob.name for knob in KNOBS.values() if knob.in_every_setting]
    zoo = space.baselines["intel-zoo"]
    assert zoo["kmp_affinity"] == "granularity=fine,compact,1,0"
    assert zoo["kmp_blocktime"] == 0
    default = space.baselines["tf-default"]
    assert (default["omp_num_threads"], default["kmp_blocktime"], default["kmp_affinity"]) == (
        8,
        200,
        "none",
    )  # one a physical core


def test_without_onednn_the_openmp_knobs_are_off_too(machine: Machine, stock: Build, resnet50: Workload) -> None:
    off = replace(stock, onednn_runtime=None, onednn=None)
    space = resolve(read_space("cpu", machine), machine=machine, build=off, workload=resnet50)
    assert "oneDNN is off" in space.inactive["omp_num_threads"]


def test_baselines_by_the_book(space: Space) -> None:
    """16 logical CPUs, 8 physical cores, 2 sockets: all five differ."""
    threads = {name: (s["inter_op"], s["intra_op"]) for name, s in space.baselines.items()}
    assert threads == {
        "tf-default": (16, 16),
        "tf-guide": (8, 8),
        "tf-guide-mkl": (2, 8),
        "intel": (2, 4),
        "intel-zoo": (2, 8),
    }
    assert space.aliases()["intel-zoo"] == ["tf-guide-mkl"]
    assert all(s.batch_size == 8 for s in space.baselines.values())


def test_a_quota_counts_for_the_guides_and_not_for_the_default(
    machine: Machine, stock: Build, resnet50: Workload
) -> None:
    boxed = replace(machine, cpu_quota=1.5)
    space = resolve(read_space("cpu", boxed), machine=boxed, build=stock, workload=resnet50)
    assert space.baselines["tf-default"]["intra_op"] == 16  # TensorFlow does not see the quota
    assert space.baselines["tf-guide"]["intra_op"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "exec('1')",
        "9**9**9**9",
        "1 << 999",
        "'a' * 999999999",
        "[0] * 999999999",
        "(" * 290,
        "min(" * 70,
        "-" * 299,
        "a\x00b",
        "'\ud800'",
        "lambda: 1",
        "(a := 1)",
        "f'{1}'",
        "min(*[1, 2])",
        "max()",
        "1 if a else 2",
        "a.b",
        "a[0]",
        "1.5",
        "1j",
        "True",
        "yield",
        "1 // 0",
        "print",
        "",
        "x" * 301,
    ],
)
def test_an_expression_that_means_harm_is_refused_at_once(text: str) -> None:
    began_s = time.thread_time()
    with pytest.raises(BadInputError) as refused:
        Expression(text).value({"a": 1})
    assert time.thread_time() - began_s < 1
    assert len(str(refused.value)) < 800


@pytest.mark.parametrize(
    ("text", "value"), [("-" * 298 + "1", 1), ("not " * 70 + "1", 1), ("(" * 140 + "1" + ")" * 140, 1)]
)
def test_an_expression_may_be_as_deep_as_it_is_long(text: str, value: int) -> None:
    assert Expression(text).value({}) == value


def test_constraints_hold_everywhere_on_the_lattice(space: Space) -> None:
    assert all(int(p["inter_op"]) * int(p["intra_op"]) <= 64 for p in space.points)
    assert len(set(space.points)) == len(space.points)


def test_constraints_on_knobs_that_are_off_do_not_bind(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space(str(DATA / "spaces/good/all_forms.toml"), machine)
    assert resolve(file, machine=machine, build=stock, workload=resnet50).points


def test_pins_hold_the_search_and_not_the_baselines(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    space = resolve(file, machine=machine, build=stock, workload=resnet50, pins={"intra_op": "3"})
    assert {p["intra_op"] for p in space.points} == {3}
    assert space.baselines["tf-guide"]["intra_op"] == 8


def test_a_pin_that_would_change_nothing_is_refused(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    with pytest.raises(BadInputError, match="would have no effect"):
        resolve(file, machine=machine, build=stock, workload=resnet50, pins={"omp_num_threads": "4"})


def test_chosen_batch_sizes_move_the_reference_to_the_nearest(
    machine: Machine, stock: Build, resnet50: Workload
) -> None:
    file = read_space("cpu", machine)
    space = resolve(file, machine=machine, build=stock, workload=resnet50, batch_sizes=[1, 2, 4])
    assert {p.batch_size for p in space.points} == {1, 2, 4}
    assert space.reference.batch_size == 4


def test_latency_fixes_the_batch_size(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    common = {"machine": machine, "build": stock, "workload": resnet50, "fixed_batch": True}
    assert {p.batch_size for p in resolve(file, **common).points} == {8}
    assert {p.batch_size for p in resolve(file, **common, batch_sizes=[1]).points} == {1}
    with pytest.raises(BadInputError, match="several batch sizes"):
        resolve(file, **common, batch_sizes=[1, 2])


def test_thread_counts_are_shares_of_the_cores_too(space: Space, machine: Machine) -> None:
    assert space.domains["inter_op"] == (1, 2, 4, 8, 16)  # of 8 cores: a third is 2, as a quarter is
    assert space.domains["intra_op"] == (1, 2, 4, 5, 6, 8, 16)
    large = replace(machine, logical_cpus=56, physical_cores=56, threads_per_core=1)
    domains = read_space("cpu", large).domains
    assert {14, 18, 28} <= set(domains["inter_op"])
    assert {14, 18, 28, 37, 42, 56} <= set(domains["omp_num_threads"])


def test_two_cores_have_the_lattices_that_they_had(
    machine: Machine, stock: Build, openmp: Build, resnet50: Workload
) -> None:
    two = replace(
        machine,
        logical_cpus=2,
        physical_cores=2,
        threads_per_core=1,
        sockets=1,
        numa_nodes={"0": "0-1"},
        affinity="0-1",
    )
    file = read_space("cpu", two)
    sizes = [len(resolve(file, machine=two, build=r, workload=resnet50).points) for r in (stock, openmp)]
    assert sizes == [28, 448]


def test_a_team_for_each_pool_keeps_to_the_machine(machine: Machine, openmp: Build, resnet50: Workload) -> None:
    points = resolve(read_space("cpu", machine), machine=machine, build=openmp, workload=resnet50).points
    assert max(int(p["inter_op"]) * int(p["omp_num_threads"]) for p in points) == 4 * machine.logical_cpus


def test_an_empty_lattice_is_refused(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    with pytest.raises(BadInputError, match="no setting of 'cpu'"):
        resolve(file, machine=machine, build=stock, workload=resnet50, pins={"inter_op": "128", "intra_op": "64"})


def test_the_default_runs_with_nothing_set(space: Space) -> None:
    assert space.deployment(space.reference) == Deployment(arguments={"batch_size": 8})
    assert space.deployment(space.reference.with_values(batch_size=32)) == Deployment(arguments={"batch_size": 32})
    tuned = setting(inter_op=1, intra_op=4, batch_size=8)
    threads = {"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "4"}
    assert space.deployment(tuned) == Deployment(env=threads, arguments={"batch_size": 8})


def test_studies_that_had_variables_of_ours_are_still_read() -> None:
    env = {"OMP_NUM_THREADS": "2", "TFTUNE_BATCH_SIZE": "16", "TFTUNE_CPUS": "0-3"}
    read = Deployment.from_dict({"names": ["incumbent"], "env": env})
    assert read == Deployment(env={"OMP_NUM_THREADS": "2"}, arguments={"batch_size": 16}, cpus="0-3")
    assert Deployment.from_dict(read.to_dict()) == read


def test_inherited_variables_do_not_reach_a_trial() -> None:
    env, dropped = CATALOGUE.scrub({"PATH": "/bin", "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "true", "HOME": "/"})
    assert env == {"PATH": "/bin", "HOME": "/"}
    assert dropped == ["OMP_NUM_THREADS", "OMP_PROC_BIND"]


def test_settings_are_values() -> None:
    a, b = setting(intra_op=2, inter_op=1, batch_size=8), setting(batch_size=8, inter_op=1, intra_op=2)
    assert a == b
    assert hash(a) == hash(b)
    assert str(a) == "intra_op=2 inter_op=1 batch_size=8"  # as it was given


@pytest.mark.parametrize(
    ("default", "sizes"),
    [
        (1, [1, 2, 4, 8, 16, 32, 64]),
        (8, [1, 2, 4, 8, 16, 32, 64]),
        (20, [2, 4, 8, 16, 20, 32, 64, 128]),
        (1024, [128, 256, 512, 1024, 2048, 4096, 8192]),
    ],
)
def test_batch_sizes_lie_around_the_workload_s_own(machine: Machine, default: int, sizes: list[int]) -> None:
    assert list(read_space("cpu", machine, default_batch=default).domains["batch_size"]) == sizes


def test_a_workload_that_is_told_no_batch_size_gets_none(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    untold = resolve(file, machine=machine, build=stock, workload=resnet50, batch_sizes=[1], passes_batch_size=False)
    assert untold.deployment(untold.reference) == Deployment()
    tuned = untold.deployment(untold.baselines["intel"])
    assert tuned.env.keys() == {"TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"}
    assert not tuned.arguments


def test_a_constraint_speaks_of_what_a_knob_is_by_default(machine: Machine, stock: Build, resnet50: Workload) -> None:
    on = replace(stock, onednn_runtime="threadpool", onednn_enabled=True)
    off = replace(stock, onednn_runtime="threadpool", onednn_enabled=False)
    file = read_space("threads", machine)

    def tried(runtime: Build) -> tuple[object, ...]:
        space = resolve(file, machine=machine, build=runtime, workload=resnet50)
        assert {point["onednn"] for point in space.points} == set(space.domains["onednn"])
        return space.domains["onednn"]

    assert tried(on) == (1,)
    assert tried(off) == (0, 1)


def test_a_space_that_does_not_ask_about_onednn_says_so_where_it_is_off(stock: Build, space: Space) -> None:
    on = structs.replace(subject(space), runtime=stock.to_dict())
    off = structs.replace(on, runtime=without_onednn(stock))
    assert "onednn" not in off.knobs
    assert [str(line) for line in terminal.space_notes(off)] == [
        "oneDNN is off by default on this CPU, and this search space does not tune it (--space threads does)"
    ]
    knob = KnobFacts(active=True, values=(0, 1), variable="TF_ENABLE_ONEDNN_OPTS", meaning="oneDNN")
    assert not terminal.space_notes(structs.replace(off, knobs=off.knobs | {"onednn": knob}))
    assert not terminal.space_notes(on)


def test_why_onednn_is_off_is_a_code_and_of_earlier_studies_its_words(stock: Build) -> None:
    off = without_onednn(stock)
    assert (off["onednn_reason"], is_off_by_default(off)) == ("no-flag", True)
    earlier = {key: value for key, value in off.items() if key != "onednn_reason"}
    assert is_off_by_default(earlier)
    assert not is_off_by_default(off | {"onednn_reason": "variable"})


def without_onednn(stock: Build) -> dict[str, object]:
    """Return a runtime as the probe describes it on a CPU with nothing but AVX2."""
    facts = {name: getattr(stock, name) for name in ("python", "tensorflow", "openmp_libraries", "xla", "cuda")}
    facts |= {"refused": None, "observations": [], "enabled": False}
    spoken = {"version": "3.7.3", "runtime": "threadpool", "threads": "2", "isa": "Intel AVX2"}
    return describe(facts, spoken, switches={}, flags=["avx2"]).to_dict()
