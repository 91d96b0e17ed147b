"""A real OpenMP library, the intel-openmp package's, asked what it makes of its variables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.errors import BadInputError, TunerError
from tuner.frameworks.tensorflow.affinity import thread_binding
from tuner.machine.host import Machine
from tuner.machine.libraries import find_library, intel_openmp
from tuner.machine.openmp import bind, complaints, rejections

CPUS = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture
def library() -> Path:
    """The package's libiomp5, which is there for x86-64 only."""
    library_path = intel_openmp()
    if library_path is None:
        pytest.skip("the intel-openmp package exists for x86-64 only")
    return library_path


def test_nothing_is_bound_unless_asked_for(library: Path) -> None:
    assert bind(library, {}, n_threads=2).cpus == (CPUS, CPUS)
    assert not bind(library, {"KMP_AFFINITY": "none"}, n_threads=2).binds(len(CPUS))


def test_threads_sit_where_the_library_puts_them(library: Path) -> None:
    bound = bind(library, {"KMP_AFFINITY": f"granularity=fine,proclist=[{CPUS[-1]}],explicit"}, n_threads=3)
    assert bound.cpus == ((CPUS[-1],),) * 3
    compact = bind(library, {"KMP_AFFINITY": "granularity=fine,compact"}, n_threads=len(CPUS))
    assert sorted(compact.cpus) == [(cpu,) for cpu in CPUS]
    assert compact.places == frozenset((cpu,) for cpu in CPUS)


def test_the_portable_spelling_binds_too(library: Path) -> None:
    spread = bind(library, {"OMP_PROC_BIND": "spread", "OMP_PLACES": "threads"}, n_threads=len(CPUS))
    assert sorted(spread.cpus) == [(cpu,) for cpu in CPUS]


@pytest.mark.parametrize(
    "value",
    [
        "tight",
        "granularity=fine,foo",
        "granularity=fine,proclist=[4097],explicit",
        "nowarnings,granularity=fine,proclist=[4097],explicit",
        "explicit",
    ],
)
def test_what_the_library_refuses_is_caught(library: Path, machine: Machine, value: str) -> None:
    assert rejections(bind(library, {"KMP_AFFINITY": value}, n_threads=2).warnings)
    with pytest.raises(BadInputError, match="rejects KMP_AFFINITY"):
        thread_binding(value, machine, n_threads=2)


def test_what_it_only_remarks_on_is_not(library: Path, machine: Machine) -> None:
    library_path, bound = thread_binding("balanced", machine, n_threads=2)
    assert library_path == library
    assert any("granularity" in line for line in bound.warnings)


@pytest.mark.parametrize("value", ["", "warnings", "compact compact", "granularity=fine"])
def test_what_is_no_affinity_is_not_even_asked_about(machine: Machine, value: str) -> None:
    with pytest.raises(BadInputError, match="is not one of its values"):
        thread_binding(value, machine, n_threads=2)


def test_complaints_of_each_library_are_read() -> None:
    log = 'OMP: Warning #58: KMP_AFFINITY: parameter invalid, ignoring "x".\nlibgomp: Invalid value for OMP_PLACES\n'
    assert complaints(log) == ('KMP_AFFINITY: parameter invalid, ignoring "x"', "Invalid value for OMP_PLACES")
    assert len(rejections(complaints(log))) == 2


def test_a_file_that_is_no_library_is_told(tmp_path: Path) -> None:
    (tmp_path / "libiomp5.so").write_text("no library")
    with pytest.raises(TunerError, match="cannot query the OpenMP library"):
        bind(tmp_path / "libiomp5.so", {}, n_threads=2)


def test_a_preload_that_is_installed_exists() -> None:
    for name in ("intel-openmp", "jemalloc", "tcmalloc"):
        path = find_library(name)
        assert path is None or path.is_file()
