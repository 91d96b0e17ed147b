"""Knobs beyond the core: early ones, preloads, CPUs, the portable spelling; and what depends on the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.frameworks import CATALOGUE, WAYS, read_space, resolve, subject
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.knobs import KNOBS
from tuner.machine.host import Machine
from tuner.report.emit import Format, emit
from tuner.space import auditing
from tuner.space.carrier import Variable
from tuner.space.deployment import Deployment
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Numbers, Value, expand
from tuner.workload.workload import Workload

LIBRARIES = {"intel-openmp": "/opt/libiomp5.so", "tcmalloc": "/usr/lib/libtcmalloc_minimal.so.4"}


@pytest.fixture
def laptop(machine: Machine) -> Machine:
    """One socket, one node, 4 cores without SMT."""
    return replace(
        machine,
        online_cpus=4,
        logical_cpus=4,
        physical_cores=4,
        threads_per_core=1,
        sockets=1,
        numa_nodes={"0": "0-3"},
        affinity="0-3",
    )


def expanded(name: str, machine: Machine, *presets: str) -> list[str]:
    """Return the words of these presets of a knob, or of all that it has."""
    values = KNOBS[name].values
    assert not isinstance(values, Numbers)
    return expand(name, values.presets, list(presets or values.presets), machine)


def space_of(name: str, machine: Machine, runtime: Build, workload: Workload, **more: object) -> Space:
    return resolve(read_space(name, machine), machine=machine, build=runtime, workload=workload, **more)  # type: ignore[arg-type]


def test_presets_suit_the_topology(machine: Machine, laptop: Machine) -> None:
    assert expanded("kmp_affinity", machine) == [
        "none",
        "granularity=fine,compact",
        "granularity=fine,compact,1,0",
        "granularity=fine,scatter",
        "granularity=fine,proclist=[0,1,2,3,8,9,10,11],explicit",
    ]
    assert expanded("kmp_affinity", laptop) == ["none", "granularity=fine,compact"]
    assert expanded("cpus", machine) == ["0-15", "0-3,8-11"]
    assert expanded("cpus", laptop) == ["0-3"]


def test_bad_presets_are_told(machine: Machine) -> None:
    with pytest.raises(BadInputError, match="unknown preset 'compat'"):
        expanded("kmp_affinity", machine, "compat")
    with pytest.raises(BadInputError, match="has no presets"):
        expanded("malloc", machine, "all")


def test_the_extended_space_has_what_can_be_deployed(machine: Machine, stock: Build, resnet50: Workload) -> None:
    space = space_of("extended", machine, stock, resnet50, libraries=LIBRARIES)
    assert space.domains["malloc"] == ("glibc", "tcmalloc")
    assert space.unavailable_values == {"malloc": "jemalloc: this library is not installed"}
    assert space.domains["cpus"] == ("0-15", "0-3,8-11")
    assert "openmp_library" in space.inactive
    assert "omp_proc_bind" not in space.inactive  # not asked for, not spoken of
    assert space.baselines["intel"]["malloc"] == "tcmalloc"
    bare = space_of("extended", machine, stock, resnet50)
    assert bare.domains["malloc"] == ("glibc",)
    assert bare.baselines["intel"]["malloc"] == "glibc"


def test_an_openmp_build_may_choose_its_library(machine: Machine, openmp: Build, resnet50: Workload) -> None:
    space = space_of("extended", machine, openmp, resnet50, libraries=LIBRARIES)
    assert space.domains["openmp_library"] == ("bundled", "intel-openmp")
    assert "OpenMP knobs" in space.inactive["onednn"]
    both = space.reference.with_values(openmp_library="intel-openmp", malloc="tcmalloc")
    assert space.deployment(both).env["LD_PRELOAD"] == "/opt/libiomp5.so:/usr/lib/libtcmalloc_minimal.so.4"


def test_what_is_as_by_default_is_not_set(machine: Machine, stock: Build, resnet50: Workload) -> None:
    space = space_of("extended", machine, stock, resnet50, libraries=LIBRARIES)
    assert space.deployment(space.reference) == Deployment(arguments={"batch_size": 8})
    fewer = space.deployment(space.reference.with_values(intra_op=8))
    assert fewer.env.keys() == {"TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"}
    assert (fewer.arguments, fewer.cpus) == ({"batch_size": 8}, None)
    assert not any(map(CATALOGUE.is_early, fewer.env))
    compiled = space.deployment(space.reference.with_values(xla="auto", cpus="0-3,8-11", onednn=0))
    assert compiled.env["TF_XLA_FLAGS"] == "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    assert compiled.cpus == "0-3,8-11"
    assert compiled.env["TF_ENABLE_ONEDNN_OPTS"] == "0"


def test_a_variable_of_the_environment_is_left_alone(machine: Machine, stock: Build, resnet50: Workload) -> None:
    inherited = {"TF_ENABLE_ONEDNN_OPTS": "0", "LD_PRELOAD": "/usr/lib/libtcmalloc.so"}
    assert CATALOGUE.scrub(inherited) == (inherited, [])
    space = space_of("extended", machine, stock, resnet50, libraries=LIBRARIES, inherited=inherited)
    assert {"onednn", "malloc"} <= space.inactive.keys()
    assert "set in your environment" in space.inactive["malloc"]
    with pytest.raises(BadInputError, match="set in your environment"):
        space_of("cpu", machine, stock, resnet50, pins={"malloc": "tcmalloc"}, libraries=LIBRARIES, inherited=inherited)


def test_openmp_s_own_variable_stands_in_for_intel_s(machine: Machine, openmp: Build, resnet50: Workload) -> None:
    space = space_of("portable", machine, openmp, resnet50)
    assert "omp_proc_bind sets the same thing" in space.inactive["kmp_affinity"]
    assert space.baselines["intel"]["omp_proc_bind"] == "close"
    assert space.baselines["tf-default"]["omp_proc_bind"] == "false"
    assert "KMP_AFFINITY" not in space.deployment(space.baselines["intel"]).env
    with pytest.raises(BadInputError, match="sets the same thing, and this knob would override it"):
        space_of("portable", machine, openmp, resnet50, pins={"kmp_affinity": "none"})


def test_gnu_s_library_hears_no_kmp_variable(machine: Machine, openmp: Build, resnet50: Workload) -> None:
    gnu = replace(openmp, openmp_libraries=["/usr/lib/libgomp.so.1"])
    space = space_of("cpu", machine, gnu, resnet50)
    assert {"kmp_affinity", "kmp_blocktime"} == space.inactive.keys()
    assert "GNU's OpenMP library" in space.inactive["kmp_affinity"]


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ({"malloc": "jemalloc"}, "malloc=jemalloc: this library is not installed; install it first"),
        ({"malloc": "mimalloc"}, "malloc=mimalloc is not one of its values; expected glibc or jemalloc or tcmalloc"),
        ({"cpus": "0-99"}, "cpus=0-99 is not a list of CPUs of this process; expected some of 0-15"),
        ({"cpus": "x"}, "cpus=x is not a list"),
        ({"onednn": "2"}, "onednn=2 is out of range; expected a whole number from 0 to 1"),
        ({"omp_proc_bind": "close"}, "would have no effect: oneDNN runs on TensorFlow's own Eigen thread pool"),
    ],
)
def test_bad_pins_are_one_line(
    machine: Machine, stock: Build, resnet50: Workload, pins: dict[str, str], words: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        space_of("cpu", machine, stock, resnet50, pins=pins)
    assert words in str(caught.value)


def test_affinities_that_bind_alike_become_one(laptop: Machine, openmp: Build, resnet50: Workload) -> None:
    def same(_: str, value: Value) -> Value:
        return "granularity=fine,compact,1,0" if "compact" in str(value) else value

    space = space_of("cpu", laptop, openmp, resnet50, spelling=same)
    assert space.domains["kmp_affinity"] == ("none", "granularity=fine,compact,1,0")
    assert space.baselines["intel-zoo"]["kmp_affinity"] == "granularity=fine,compact,1,0"


def test_defaults_come_from_what_was_seen(laptop: Machine, openmp: Build) -> None:
    observations = [
        {
            "changes": None,
            "created": 5,
            "names": {},
            "onednn": "",
            "openmp": {"max_threads": 3, "blocktime_ms": 0, "cpus": [0]},
        }
    ]
    build_here = replace(openmp, observations=observations, cpus=4)
    assert KNOBS["kmp_blocktime"].default(laptop, build_here, 8) == 0
    assert KNOBS["omp_num_threads"].default(laptop, build_here, 8) == 3
    elsewhere = replace(build_here, cpus=2)  # another mask: what was seen there says nothing
    assert KNOBS["omp_num_threads"].default(laptop, elsewhere, 8) == 4


def test_a_knob_is_one_object_and_one_line_of_a_space_file(
    machine: Machine, stock: Build, resnet50: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From outside of the package: the pools of glibc's allocator, as docs/contributing/architecture.md shows it."""
    arenas = Knob(
        name="malloc_arenas",
        meaning="pools of memory that glibc's allocator keeps for its threads",
        values=Numbers(limit=1024),
        carrier=Variable("MALLOC_ARENA_MAX"),
        default=lambda machine, *_: 8 * machine.logical_cpus,
        audit=auditing.unobservable,
        in_every_setting=False,
        read_at_start=True,
    )
    monkeypatch.setitem(KNOBS, arenas.name, arenas)
    (tmp_path / "mine.toml").write_text('schema = 1\n[knobs.malloc_arenas]\nvalues = [1, 2, "physical_cores"]\n')
    file = read_space(str(tmp_path / "mine.toml"), machine)
    space = resolve(file, machine=machine, build=stock, workload=resnet50, pins={"intra_op": "4"})
    assert space.domains["malloc_arenas"] == (1, 2, 8)
    assert space.reference["malloc_arenas"] == 128
    one = next(point for point in space.points if point["malloc_arenas"] == 1)
    deployment = space.deployment(one)
    assert deployment.env["MALLOC_ARENA_MAX"] == "1"
    assert CATALOGUE.is_early("MALLOC_ARENA_MAX")  # so its trials begin with it
    assert "export MALLOC_ARENA_MAX=1" in emit(deployment, Format.SH, title="t")
    described = subject(space).knobs["malloc_arenas"]
    assert (described.variable, described.values) == ("MALLOC_ARENA_MAX", (1, 2, 8))
    with pytest.raises(BadInputError, match="malloc_arenas=0 is out of range"):
        arenas.parse("0", machine)


@pytest.mark.parametrize("format_", list(Format))
def test_cpus_are_emitted_as_what_starts_the_program(format_: Format) -> None:
    text = emit(Deployment(env={"TF_NUM_INTRAOP_THREADS": "4"}, cpus="0-1,4"), format_, title="t", ways=WAYS)
    expected = {
        Format.SH: "taskset -c 0-1,4",
        Format.DOTENV: "taskset -c 0-1,4",
        Format.DOCKER: "--cpuset-cpus=0-1,4",
        Format.COMPOSE: 'cpuset: "0-1,4"',
        Format.K8S: "taskset -c 0-1,4",
        Format.SYSTEMD: "CPUAffinity=0-1,4",
        Format.TFSERVING: "taskset -c 0-1,4",
        Format.TFSERVING_K8S: "It was kept to CPUs 0-1,4",
        Format.PYTHON: "os.sched_setaffinity(0, [0, 1, 4])",
        Format.JSON: '"cpus": "0-1,4"',
    }
    assert expected[format_] in text
    assert "TFTUNE" not in text


def test_settings_keep_their_order_and_are_the_same_in_any() -> None:
    values, other = ({"malloc": "glibc", "inter_op": 1}, {"inter_op": 1, "malloc": "glibc"})
    assert str(Setting.of(values)) == "malloc=glibc inter_op=1"
    assert Setting.of(values) == Setting.of(other)
    assert len({Setting.of(values), Setting.of(other)}) == 1
