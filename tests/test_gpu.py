"""GPUs as far as they can be tried without one: over a driver that has none, and TensorFlow without a driver.

`tests/data/gpu/driver.c` stands in for NVIDIA's two libraries, so that the real bindings, the real child and real
searches run over it. What runs on a real card only is in `tests/gpu/test_real.py`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from msgspec import convert, structs

from tests.command_line import tftune
from tests.conftest import QUIET, Call, Card
from tests.frameworks import MADE_MACHINE, STOCK
from tests.gpu import plan, report
from tuner.deploy.program import copies
from tuner.devices.cpu import Rapl
from tuner.devices.gpu import (
    GpuFacts,
    GpuProcess,
    GpuState,
    GpuUnreadable,
    GpuWatch,
    Problem,
    Throttle,
    device_conditions,
)
from tuner.devices.nvidia import NvidiaGpu, throttles
from tuner.devices.registry import find
from tuner.errors import BadInputError, TunerError
from tuner.frameworks.tensorflow.framework import FRAMEWORK, why_no_gpu
from tuner.job.parsed import space_file
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.warning import Code, condition_warnings
from tuner.plain import to_plain
from tuner.report.emit import Format, Ways, emit
from tuner.rules.recipe import Recipe, speaks_of, thread_recipes
from tuner.rules.strata import Gain, SituationKind, Stratum, advice_by_stratum
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space, resolve
from tuner.space.term import EIGEN, Scale
from tuner.stats.tail import LimitStatus
from tuner.study.attributes import StoredFinals
from tuner.study.contenders import contenders_of
from tuner.study.record import Record
from tuner.study.sampler import too_large_batch
from tuner.study.storage import open_storage
from tuner.study.trials import Trial
from tuner.trial.outcome import Slice, Status, energy_of, metered
from tuner.workload.workload import load

PACKAGES = Path(__file__).parent / "data/packages"
CARD = GpuFacts(
    index=0,
    uuid="GPU-aaaa1111",
    model="NVIDIA Fake 100",
    memory_bytes=80 << 30,
    driver="570.00",
    versions={"cuda": "12.8"},
    capability="9.0",
    power_limit_w=700.0,
    max_clock_mhz=1980,
)
OTHER = dataclasses.replace(CARD, index=1, uuid="GPU-aaaa2222", model="NVIDIA Fake 50")
SPLIT = dataclasses.replace(CARD, is_split=True)
SLICES = [dataclasses.replace(CARD, uuid=f"MIG-{n}", model="NVIDIA Fake 100 MIG", slice_index=n) for n in (0, 2)]
IDLE = GpuState(
    free_bytes=79 << 30,
    used_bytes=1 << 30,
    clock_mhz=1900,
    power_w=300.0,
    temperature_c=50,
    throttle=(),
    processes=(),
)


class FakeReader:
    """A reader that tells what it is made of; `lost` is raised in the place of a state."""

    def __init__(self, cards: list[GpuFacts], *states: GpuState, lost: GpuUnreadable | None = None) -> None:
        self.cards = cards
        self.states = list(states or (IDLE,))
        self.lost = lost
        self.n_looks = 0

    def gpus(self) -> list[GpuFacts]:
        if self.lost is not None and not self.cards:
            raise self.lost
        return self.cards

    def state(self, uuid: str) -> GpuState:
        self.n_looks += 1
        if self.lost is not None:
            raise self.lost
        return self.states[min(self.n_looks, len(self.states)) - 1]

    def energy_j(self, uuid: str) -> float | None:
        if self.lost is not None:
            raise self.lost
        return 300.0 * self.n_looks


def gpu_of(cards: list[GpuFacts], place: str = "", visible: str | None = None) -> NvidiaGpu:
    """Return the device at a place, among cards that are there."""
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return NvidiaGpu(place, reader=FakeReader(cards), env=env)


@pytest.mark.parametrize(
    ("place", "visible", "uuid"),
    [
        ("", None, "GPU-aaaa1111"),
        ("1", None, "GPU-aaaa2222"),
        ("GPU-aaaa2", None, "GPU-aaaa2222"),
        ("", "1", "GPU-aaaa2222"),
        ("1", "1, 0", "GPU-aaaa1111"),
        ("", "GPU-aaaa2222", "GPU-aaaa2222"),
    ],
)
def test_a_place_names_a_card_of_those_that_are_visible(place: str, visible: str | None, uuid: str) -> None:
    assert gpu_of([CARD, OTHER], place, visible).facts.uuid == uuid


@pytest.mark.parametrize(
    ("cards", "place", "visible", "found"),
    [
        ([], "", None, "sees no GPU here"),
        ([CARD], "1", None, "there is no gpu:1; there are: gpu:0 (NVIDIA Fake 100)"),
        ([CARD, OTHER], "1", "0", "there is no gpu:1 (CUDA_VISIBLE_DEVICES=0)"),
        ([CARD], "", "", "CUDA_VISIBLE_DEVICES= hides all GPUs"),
        ([CARD], "", "-1", "hides all GPUs"),
        ([CARD], "first", None, "gpu:first names no GPU; expected gpu, gpu:1"),
        ([CARD], "0:1:2", None, "names no GPU"),
        ([CARD, OTHER], "GPU-aaaa", None, "the UUIDs of 2 GPUs begin with GPU-aaaa"),
        ([CARD], "GPU-bbbb", None, "no GPU's UUID begins with GPU-bbbb; there are: GPU-aaaa1111"),
        ([CARD], "0:0", None, "gpu:0 has no MIG slice 0; it is not split into any: use gpu:0"),
        ([SPLIT, *SLICES], "", None, "gpu:0 (NVIDIA Fake 100) is in MIG mode; name one of its MIG slices: gpu:MIG-0"),
        ([SPLIT], "", None, "is in MIG mode; it has no MIG slice yet"),
        ([SPLIT, *SLICES], "0:1", None, "gpu:0 has no MIG slice 1; there are: gpu:0:0"),
        ([SPLIT, *SLICES], "MIG-7", None, "no GPU's UUID begins with MIG-7"),
    ],
)
def test_what_names_no_card_says_what_there_is(
    cards: list[GpuFacts], place: str, visible: str | None, found: str
) -> None:
    with pytest.raises(BadInputError) as error:
        gpu_of(cards, place, visible).check()
    assert found in str(error.value)


def test_a_slice_is_named_by_two_numbers_or_by_its_own() -> None:
    cards = [SPLIT, *SLICES]
    assert gpu_of(cards, "0:2").facts == gpu_of(cards, "MIG-2").facts == SLICES[1]
    # What stands behind an invalid one is hidden.
    assert gpu_of(cards, visible="MIG-0,7,MIG-2").seen_of(cards) == SLICES[:1]


def test_what_inspect_calls_a_gpu_is_what_device_takes() -> None:
    gpus_here = [SPLIT, *SLICES, OTHER]
    assert gpu_of(gpus_here).places(gpus_here) == {
        CARD.uuid: "gpu:0",
        "MIG-0": "gpu:0:0",
        "MIG-2": "gpu:0:2",
        OTHER.uuid: "gpu:1",
    }
    assert gpu_of(gpus_here, visible="1,MIG-2").places(gpus_here) == {OTHER.uuid: "gpu:0", "MIG-2": "gpu:1"}
    for visible in (None, "1", "MIG-2,1"):
        for uuid, name in gpu_of(gpus_here, visible=visible).places(gpus_here).items():
            if uuid != SPLIT.uuid:
                assert gpu_of(gpus_here, name.removeprefix("gpu:"), visible).facts.uuid == uuid


def test_a_trial_sees_its_card_alone_by_its_full_name() -> None:
    device = NvidiaGpu("1", reader=FakeReader([CARD, OTHER]), env={"CUDA_VISIBLE_DEVICES": "1,0"})
    assert device.environment() == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-aaaa1111"}
    assert device.describe() == {"name": "gpu:1", **CARD.to_dict()}


def test_two_cards_of_one_kind_are_one_study_and_another_driver_is_another() -> None:
    def identity(card: GpuFacts) -> list[object]:
        return NvidiaGpu(reader=FakeReader([card]), env={}).identity()

    assert identity(CARD) == identity(dataclasses.replace(CARD, uuid="GPU-b", index=3))
    assert identity(CARD) != identity(dataclasses.replace(CARD, driver="580.1"))
    assert identity(CARD) != identity(OTHER)
    assert identity(CARD) != identity(dataclasses.replace(CARD, power_limit_w=350.0))


@pytest.mark.parametrize(
    ("problem", "text", "advice"),
    [
        (Problem.NO_PACKAGE, "the package nvidia-ml-py is not installed", "pip install nvidia-ml-py"),
        (Problem.NO_DRIVER, "the driver does not answer", "docker run --gpus all"),
    ],
)
def test_why_no_card_can_be_used_is_one_line(problem: Problem, text: str, advice: str) -> None:
    device = NvidiaGpu(reader=FakeReader([], lost=GpuUnreadable(problem, text)), env={})
    with pytest.raises(BadInputError) as error:
        device.check()
    assert error.value.message == f"cannot use --device gpu: {text}"
    assert advice in error.value.hint


def test_a_busy_card_is_refused_by_the_name_of_who_uses_it() -> None:
    used = dataclasses.replace(IDLE, processes=(GpuProcess(pid=4242, name="trainer", memory_bytes=3 << 30),))
    with pytest.raises(BadInputError) as error:
        NvidiaGpu(reader=FakeReader([CARD], used), env={}).check_idle()
    assert "gpu (NVIDIA Fake 100) is in use by trainer (process 4242, 3.0 GiB)" in str(error.value)
    NvidiaGpu(reader=FakeReader([CARD]), env={}).check_idle()
    own = dataclasses.replace(IDLE, processes=(GpuProcess(pid=os.getpid(), name="tftune", memory_bytes=None),))
    NvidiaGpu(reader=FakeReader([CARD], own), env={}).check_idle()
    hidden = dataclasses.replace(IDLE, used_bytes=12 << 30)
    with pytest.raises(BadInputError, match="a program that cannot be seen from here holds 12"):
        NvidiaGpu(reader=FakeReader([CARD], hidden), env={}).check_idle()


def test_throttling_power_and_strangers_are_in_the_conditions_and_warned_of() -> None:
    hot = dataclasses.replace(IDLE, clock_mhz=1200, power_w=500.0, throttle=(Throttle.HEAT, Throttle.FIXED_CLOCKS))
    seen = device_conditions([IDLE, hot, hot, IDLE], foreign=["trainer (process 7)"], lost="")
    assert seen.throttled == {"heat": 0.5, "fixed clocks": 0.5}
    assert (seen.mhz, seen.power_w, seen.n_looks) == ((1200, 1900), 400.0, 4)
    warnings = {each.code: each.observation for each in condition_warnings(dataclasses.replace(QUIET, device=seen))}
    assert warnings[Code.GPU_THROTTLED] == "the GPU ran below its highest clock: heat (50 % of the time)"
    assert "trainer" in warnings[Code.GPU_SHARED]
    assert Code.GPU_LOST not in warnings
    gone = device_conditions([], foreign=[], lost="GPU is lost")
    assert [each.code for each in condition_warnings(dataclasses.replace(QUIET, device=gone))] == [Code.GPU_LOST]


def test_a_watch_looks_while_something_runs_and_ends_where_the_driver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.devices.gpu._SAMPLE_S", 0.001)
    programs = [GpuProcess(pid=pid, name=name, memory_bytes=None) for pid, name in ((1, "init"), (os.getpid(), "own"))]
    reader = FakeReader([CARD], dataclasses.replace(IDLE, processes=tuple(programs)))
    watch = GpuWatch(MADE_MACHINE, CARD.uuid, reader)
    while reader.n_looks < 3:
        pass
    conditions = watch.conditions()
    assert conditions.device is not None
    assert (conditions.device.n_looks >= 3, conditions.device.lost) == (True, "")
    assert conditions.to_dict()["device"]["power_w"] == 300.0
    assert conditions.device.foreign == ("init (process 1)",)
    lost = FakeReader([CARD], lost=GpuUnreadable(Problem.LOST, "GPU is lost"))
    watch = GpuWatch(MADE_MACHINE, CARD.uuid, lost)
    while not lost.n_looks:
        pass
    after = watch.conditions().device
    assert after is not None
    assert (after.n_looks, after.lost) == (0, "GPU is lost")
    device = NvidiaGpu(reader=lost, env={})
    assert (device.free_memory_bytes(), device.energy_j()) == (None, None)


def test_bits_of_throttling_are_read_as_nvml_writes_them() -> None:
    assert throttles(0) == throttles(0x1) == ()  # an idle card is not slowed
    assert throttles(0x4 | 0x20 | 0x40) == (Throttle.POWER_CAP, Throttle.HEAT)


# --- the space


def gpu_space(*, may_change: bool = False, device: str = "gpu", **options: Any) -> Space:
    """Return the space of GPUs on the made machine, for ResNet-50."""
    workload = load("resnet50")
    file = space_file("gpu", FRAMEWORK, MADE_MACHINE, default_batch=workload.batch_size)
    off = {} if may_change else dict.fromkeys(("tf32", "mixed_precision"), "it changes numerics")
    return resolve(
        file,
        catalogue=FRAMEWORK.catalogue,
        machine=MADE_MACHINE,
        build=STOCK,
        workload=workload,
        device=device,
        unavailable=off,
        **options,
    )


def test_the_space_of_a_gpu_has_its_knobs_and_its_guides() -> None:
    space = gpu_space()
    assert {"gpu_thread_mode", "gpu_thread_count", "xla", "gpu_allocator", "batch_size"} <= space.domains.keys()
    assert {"tf32", "mixed_precision"} <= space.inactive.keys()
    assert list(space.baselines) == ["tf-default", "tf-gpu-guide", "gpu-private", "xla-auto"]
    guide = space.deployment(space.baselines["tf-gpu-guide"]).env
    assert guide["TF_GPU_THREAD_MODE"] == "gpu_private"
    assert guide["TF_GPU_THREAD_COUNT"] == "2"
    assert "--tf_xla_auto_jit=2" in guide["TF_XLA_FLAGS"]
    assert not space.deployment(space.reference).env
    # A number of threads means nothing where the card has none of its own.
    assert all(p["gpu_thread_mode"] != "global" or p["gpu_thread_count"] == 2 for p in space.points)
    alone = space.reference.with_values(inter_op=1)
    assert "TF_GPU_THREAD_COUNT" not in space.deployment(alone).env
    assert max(map(int, space.domains["batch_size"])) == 1024


def test_numerics_change_only_where_that_is_allowed() -> None:
    space = gpu_space(may_change=True)
    assert space.domains["tf32"] == (0, 1)
    setting = space.reference.with_values(mixed_precision="on", tf32=0)
    deployment = space.deployment(setting)
    assert deployment.env["NVIDIA_TF32_OVERRIDE"] == "0"
    assert deployment.options == {"auto_mixed_precision": "on"}
    code = emit(deployment, Format.PYTHON, title="x", ways=Ways(session=FRAMEWORK.session_code))
    assert "set_experimental_options({'auto_mixed_precision': True})" in code
    compile(code, "snippet", "exec")


def test_knobs_of_a_gpu_have_no_effect_on_the_cpu() -> None:
    space = gpu_space(device="cpu")
    assert space.inactive["gpu_thread_mode"] == "it acts only with --device gpu, and this is for the cpu"
    assert not [name for name in space.baselines if "gpu" in name]
    with pytest.raises(
        BadInputError, match="gpu_thread_mode=gpu_private would have no effect: it acts only with --device gpu"
    ):
        gpu_space(device="cpu", pins={"gpu_thread_mode": "gpu_private"})


def test_the_design_scans_batch_sizes_to_where_memory_ends() -> None:
    space = gpu_space()
    settings = FRAMEWORK.initial_design(space)
    assert [setting.batch_size for setting in settings] == [32, 128, 512]
    assert {setting.without("batch_size") for setting in settings} == {space.reference.without("batch_size")}
    full = Trial(number=5, setting=settings[1], status=Status.OOM)
    assert too_large_batch([full]) == 128
    assert too_large_batch([dataclasses.replace(full, status=Status.FAILED)]) == math.inf


def test_the_winner_at_another_batch_stands_beside_the_default_at_that_batch() -> None:
    """What guides say of CPUs is no baseline of a GPU, and does not stand again either."""
    space = gpu_space()
    best = space.reference.with_values(batch_size=128)
    names = {name for contender in contenders_of(best, space) for name in contender.names}
    assert names == {"incumbent", "tf-default@same-batch", *space.baselines}


# --- rules


def test_rules_of_a_gpu_speak_of_its_knobs_and_those_of_a_cpu_do_not() -> None:
    def knobs_of(recipes: list[Recipe]) -> set[str]:
        return {knob for recipe in recipes for knob, _ in recipe.items}

    assert knobs_of(thread_recipes(on_gpu=True)) == {"inter_op", "intra_op", "gpu_thread_mode", "xla"}
    assert not knobs_of(thread_recipes()) & {"gpu_thread_mode", "xla"}
    assert [speaks_of("xla", on_gpu=on_gpu) for on_gpu in (True, False)] == [True, False]
    guide = Recipe.of({"gpu_thread_mode": "gpu_private", "xla": "auto"})
    scale = Scale(cores=8, sockets=1, pools=1, batch_size=8, pool=EIGEN, onednn=True)
    assert not guide.values(scale)
    assert guide.values(dataclasses.replace(scale, on_gpu=True)) == {"gpu_thread_mode": "gpu_private", "xla": "auto"}


def test_what_gains_on_one_gpu_is_not_advised_on_another() -> None:
    kind = Stratum(shape="8 cores", pool=EIGEN, onednn=True, quota=False, gpu="NVIDIA Fake 100")
    gains = [
        Gain(
            situation=SituationKind(workload=f"w{i}", mode="inference", **structs.asdict(kind)), log_ratio=0.1 + i / 1e3
        )
        for i in range(6)
    ]
    advice = advice_by_stratum(gains)
    own = advice.row(kind)
    assert own is not None
    assert own.is_advised
    assert advice.row(structs.replace(kind, gpu="NVIDIA Fake 50")) is None
    assert advice.row(structs.replace(kind, gpu="")) is None
    more_cores = advice.row(structs.replace(kind, shape="16 cores"))
    assert more_cores is not None  # the build's, of the same model


# --- energy


def slice_of(joules: float | None, *, n_steps: int = 10, elapsed_s: float = 2.0) -> Slice:
    return Slice(
        start_s=0.0, elapsed_s=elapsed_s, n_steps=n_steps, step_s=(elapsed_s / n_steps,) * n_steps, energy_j=joules
    )


def test_energy_is_the_difference_of_two_readings_and_travels_with_the_slice() -> None:
    plain = slice_of(None)
    assert metered(plain, 100.0, 160.0).energy_j == 60.0
    assert metered(plain, None, 160.0) is plain
    kept = convert(to_plain(metered(plain, 100.0, 160.0)), Slice)
    assert kept.energy_j == 60.0
    assert "energy_j" not in to_plain(plain)
    assert energy_of([kept, kept]) == (120.0, 4.0)
    assert energy_of([kept, plain]) == (None, 4.0)


def test_the_objective_energy_prefers_more_items_a_joule() -> None:
    cheap, dear = slice_of(100.0), slice_of(200.0)
    assert Objective.ENERGY.log_rate(cheap, 8) - Objective.ENERGY.log_rate(dear, 8) == pytest.approx(math.log(2))
    assert Objective.ENERGY.shown(Objective.ENERGY.log_rate(cheap, 8)) == pytest.approx(100 / 80)
    with pytest.raises(TunerError, match="the energy of a slice is not known"):
        Objective.ENERGY.log_rate(slice_of(None), 8)


def test_a_limit_of_power_is_kept_or_broken_or_open() -> None:
    limits = Limits(power_w=250.0)
    statuses = [limits.status([], None, power) for power in (200.0, 300.0, None)]
    assert statuses == [LimitStatus.MET, LimitStatus.BROKEN, LimitStatus.UNKNOWN]
    assert limits.excess([], None, 500.0) == [pytest.approx(math.log(2))]
    assert limits.unmet_text([([], None, 300.0)]) == "none takes at most 250 W; the least was 300 W"
    assert to_plain(Limits()) == {"p99_s": None, "memory_bytes": None}  # studies of earlier versions keep their names


def test_rapl_counts_on_where_a_counter_begins_again(tmp_path: Path) -> None:
    assert "shows no energy counter" in str(Rapl(tmp_path).why_unreadable())
    zones = tmp_path / "sys/class/powercap"
    for name, part, uj in (
        ("intel-rapl:0", "package-0", 5_000_000),
        ("intel-rapl:1", "package-1", 1_000_000),
        ("intel-rapl:2", "psys", 9_000_000),  # the platform, which has the packages in it
        ("intel-rapl:0:0", "core", 4_000_000),
    ):
        (zones / name).mkdir(parents=True)
        (zones / name / "name").write_text(f"{part}\n")
        (zones / name / "energy_uj").write_text(f"{uj}\n")
        (zones / name / "max_energy_range_uj").write_text("8000000\n")
    rapl = Rapl(tmp_path)
    assert rapl.energy_j() == 6.0
    (zones / "intel-rapl:0" / "energy_uj").write_text("1000000\n")
    assert rapl.energy_j() == 10.0
    assert rapl.why_unreadable() is None
    (zones / "intel-rapl:1" / "energy_uj").unlink()
    assert rapl.energy_j() is None
    assert "cannot be read" in str(rapl.why_unreadable())


# --- snippets


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        (Format.SH, "export CUDA_VISIBLE_DEVICES=1"),
        (Format.DOTENV, "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        (Format.DOCKER, "docker run --gpus device=1"),
        (Format.COMPOSE, 'device_ids: ["1"], capabilities: [gpu]'),
        (Format.K8S, "nvidia.com/gpu: 1"),
        (Format.SYSTEMD, 'Environment="CUDA_VISIBLE_DEVICES=1"'),
        (Format.PYTHON, 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'),
        (Format.JSON, '"gpu": "1"'),
    ],
)
def test_every_format_says_which_card(format_: Format, text: str) -> None:
    deployment = Deployment(env={"TF_GPU_THREAD_MODE": "gpu_private"}, gpu="1")
    snippet = emit(deployment, format_, title="x", machine=MADE_MACHINE if format_ is Format.K8S else None)
    assert text in snippet
    assert "TF_GPU_THREAD_MODE" in snippet
    if format_ in (Format.DOCKER, Format.COMPOSE, Format.K8S):
        assert "CUDA_VISIBLE_DEVICES" not in snippet  # inside of a container the card is its only one


def test_snippets_for_yaml_readers_can_be_read() -> None:
    import yaml

    deployment = Deployment(env={"A": "1"}, gpu="0")
    assert yaml.safe_load(emit(deployment, Format.K8S, title="x"))["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    k8s = yaml.safe_load(emit(deployment, Format.K8S, title="x", machine=MADE_MACHINE))
    assert k8s["resources"]["limits"]["nvidia.com/gpu"] == 1
    service = yaml.safe_load(emit(deployment, Format.COMPOSE, title="x"))["services"]["program"]
    devices = service["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]}]
    assert Deployment.from_dict(deployment.to_dict()) == deployment


def test_a_slice_is_asked_for_by_its_kind_and_options_are_said_to_a_server() -> None:
    sliced = Deployment(env={"A": "1"}, options={"auto_mixed_precision": "on"}, gpu="MIG-00000000-0")
    assert "nvidia.com/mig-" in emit(sliced, Format.K8S, title="x")
    ways = Ways(server_flags=FRAMEWORK.server_flags)
    assert "auto_mixed_precision: on" in emit(sliced, Format.TFSERVING, title="x", ways=ways)


def test_a_program_keeps_the_gpu_that_a_scheduler_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(env={"TF_GPU_THREAD_MODE": "gpu_private"}, gpu="1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    [copy] = copies(deployment, ["serve"])
    assert copy.env["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    [copy] = copies(deployment, ["serve"])
    assert "CUDA_VISIBLE_DEVICES" not in copy.env
    assert copy.env["TF_GPU_THREAD_MODE"] == "gpu_private"


# --- why TensorFlow sees none


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"is_cuda_build": False}, "it was built without CUDA"),
        ({"log": "Could not load dynamic library 'libcuda.so.1'; dlerror: no"}, "NVIDIA's driver is not there"),
        (
            {
                "log": "Could not load dynamic library 'libcudnn.so.9'; x\n"
                "Could not load dynamic library 'libcufft.so.11'"
            },
            "libcudnn.so.9, libcufft.so.11 cannot be loaded; this build is for CUDA 12.5.1 and cuDNN 9",
        ),
        (
            {"log": "failed call to cuInit: INTERNAL: CUDA error: no device"},
            "CUDA does not start: CUDA error: no device",
        ),
        ({"failed": "CUDA error: : CUDA_ERROR_X"}, "CUDA does not start: CUDA error: : CUDA_ERROR_X"),
        ({}, "it gives no reason"),
    ],
)
def test_why_tensorflow_sees_no_gpu(facts: dict[str, Any], reason: str) -> None:
    told = {"gpus": [], "is_cuda_build": True, "cuda": "12.5.1", "cudnn": "9", "log": "", "failed": ""} | facts
    assert reason in why_no_gpu(told).message


def test_a_build_without_cuda_is_not_even_started() -> None:
    with pytest.raises(BadInputError, match="TensorFlow sees no GPU: it was built without CUDA"):
        FRAMEWORK.seen_devices(Path(sys.executable), {}, dataclasses.replace(STOCK, cuda=None), NvidiaGpu())


# --- the command line


def test_a_gpu_that_is_not_there_is_one_line(call: Call) -> None:
    code, out, err = call("search", "lenet5", "--device", "gpu:9")
    assert (code, out) == (2, "")
    assert "--device gpu:9" in err or "there is no gpu:9" in err
    assert call("search", "lenet5", "--device", "cpu:1")[0] == 2
    assert "there is only one cpu" in call("search", "lenet5", "--device", "cpu:1")[2]


def test_options_of_a_gpu_are_refused_on_the_cpu(call: Call) -> None:
    code, _, err = call("search", "lenet5", "--feed", "device")
    assert (code, "--feed device does not apply to the CPU" in err) == (2, True)
    code, _, err = call("search", "lenet5", "--numerics", "yes")
    assert (code, "unknown word for --numerics 'yes'" in err) == (2, True)
    code, _, err = call("search", "lenet5", "--set", "gpu_thread_mode=gpu_private")
    assert code == 2
    assert "it acts only with --device gpu, and this is for the cpu" in " ".join(err.split())
    assert call("search", "lenet5", "--set", "tf32=0")[0] == 2


def test_the_cpu_has_one_device() -> None:
    assert find("cpu").name == "cpu"
    with pytest.raises(BadInputError, match="unknown device 'gpuu'; did you mean gpu or cpu"):
        find("gpuu:1")


# --- over a driver without a card


def inspected(card_env: dict[str, str], cwd: Path, *options: str) -> dict[str, Any]:
    words = ["inspect", str(PACKAGES / "product.py"), "--framework", "numpy", "--json", *options]
    ended = tftune(*words, cwd=cwd, env=card_env)
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_inspect_shows_what_the_driver_tells(card: Card, tmp_path: Path) -> None:
    env = card(cards=2, slices=2, throttle=4, foreign=1, watts=650)
    document = inspected(env, tmp_path)
    gpus_told = document["gpus"]
    assert [each["device"] for each in gpus_told] == ["gpu:0", "gpu:0:0", "gpu:0:1", "gpu:1"]
    first = gpus_told[0]
    assert (first["model"], first["driver"], first["cuda"], first["capability"]) == (
        "NVIDIA Fake 100",
        "570.00",
        "12.8",
        "9.0",
    )
    assert (first["power_w"], first["power_limit_w"], first["clock_mhz"]) == (650.0, 700.0, 1900)
    assert (first["is_split"], first["throttle"], document["why_no_gpu"]) == (True, ["power cap"], "")
    assert "(process 1, 3.0 GiB)" in first["processes"][0]
    shown = tftune("inspect", str(PACKAGES / "product.py"), "--framework", "numpy", cwd=tmp_path, env=env)
    assert "below its highest clock: power cap" in " ".join(shown.stdout.split())


def test_inspect_says_why_there_is_no_gpu(card: Card, tmp_path: Path) -> None:
    document = inspected(card(driver=0), tmp_path)
    assert document["gpus"] == []
    assert "driver does not answer" in document["why_no_gpu"]


@pytest.mark.parametrize(
    ("state", "device", "found"),
    [
        ({"driver": 0}, "gpu", "cannot use --device gpu: NVIDIA's driver does not answer"),
        ({"cards": 2}, "gpu:2", "there is no gpu:2; there are: gpu:0 (NVIDIA Fake 100), gpu:1"),
        ({"slices": 2}, "gpu", "is in MIG mode; name one of its MIG slices"),
        ({"slices": 2}, "gpu:0:5", "gpu:0 has no MIG slice 5"),
        ({"foreign": 1}, "gpu", "is in use by"),
        ({"lost": 1}, "gpu", "cannot use --device gpu: GPU is lost"),
        ({"mode": 3}, "gpu", "lets one process compute at a time, and tftune needs two; let it have more"),
    ],
)
def test_a_card_that_cannot_be_used_is_one_line_before_any_trial(
    state: dict[str, int], device: str, found: str, card: Card, tmp_path: Path
) -> None:
    words = ["search", str(PACKAGES / "product.py"), "--framework", "numpy", "--device", device]
    ended = tftune(*words, cwd=tmp_path, env=card(**state))
    assert ended.returncode == 2, ended.stderr
    assert found in " ".join(ended.stderr.split())
    assert ended.stdout == ""


def test_a_framework_without_gpus_says_so(card: Card, tmp_path: Path) -> None:
    ended = tftune("inspect", "lenet5", "--framework", "openvino", "--device", "gpu", cwd=tmp_path, env=card())
    assert (ended.returncode, "OpenVINO cannot run on gpu; expected --device cpu" in ended.stderr) == (2, True)
    ended = tftune("inspect", "lenet5", "--framework", "onnxruntime", "--device", "gpu", cwd=tmp_path, env=card())
    assert ended.returncode == 2
    assert "ONNX Runtime sees no GPU: it was built without CUDA; install onnxruntime-gpu" in ended.stderr


def test_energy_needs_a_meter(card: Card, tmp_path: Path) -> None:
    words = ["search", str(PACKAGES / "product.py"), "--framework", "numpy", "--device"]
    env = card(counts_energy=0)
    for option in (["--objective", "energy"], ["--max-power", "300"]):
        ended = tftune(*words, "gpu", *option, cwd=tmp_path, env=env)
        assert (ended.returncode, "reports no energy" in ended.stderr) == (2, True)
    ended = tftune(*words, "gpu:0:0", "--objective", "energy", cwd=tmp_path, env=card(slices=1))
    assert (ended.returncode, "which other MIG slices share" in " ".join(ended.stderr.split())) == (2, True)


def finals_slices(folder: Path, study: str) -> dict[str, tuple[int, list[Slice]]]:
    """Return each contender's batch size, and its slices in the rounds of a stored study's finals that count."""
    storage = open_storage(f"sqlite:///{folder}/results/tftune.db", create=False)
    assert storage is not None
    record = Record(optuna.load_study(study_name=study, storage=storage))  # `find` knows no framework of a plugin here
    held = StoredFinals.from_dict(record.get("finals"))
    rounds = [each.slices for each in held.rounds if not each.interruptions]
    by_name = {each.names[0]: each.setting.batch_size for each in held.contenders}
    slices = {name: [s for each in rounds for s in each.get(name, [])] for name in by_name}
    return {name: (by_name[name], slices[name]) for name in by_name if slices[name]}


def assert_metered(slices: list[Slice], watts: float) -> None:
    """What a slice took is what a card of so many watts takes meanwhile, and a little before and after it."""
    joules = np.array([each.energy_j for each in slices], dtype=float)
    while_timed = watts * np.array([each.elapsed_s for each in slices])
    assert (joules >= while_timed - 0.002).all()  # the counter tells whole millijoules
    assert (joules / while_timed).min() < 1.3


def joules_per_item(batch_size: int, slices: list[Slice]) -> float:
    joules = sum(each.energy_j or math.nan for each in slices)
    return joules / (batch_size * sum(each.n_steps for each in slices))


@pytest.mark.tensorflow
def test_a_search_runs_over_the_driver(card: Card, tmp_path: Path) -> None:
    """Its environment, its memory, its energy and its identity; a model of arrays computes in the place of a card."""
    env = card(watts=300, process_mib=700, throttle=4)
    words = ["search", str(PACKAGES / "product.py"), "--framework", "numpy", "--time-budget", "10s", "--json"]
    ended = tftune(*words, "--device", "gpu", cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["space"] == "gpu"
    assert document["device"]["model"] == "NVIDIA Fake 100"
    assert document["device"]["feed"] == "host"
    measured = [trial for trial in document["history"] if trial["status"] == "ok"]
    assert {trial["peak_memory_bytes"] for trial in measured} == {700 << 20}
    timed = finals_slices(tmp_path, document["study"])
    assert set(timed) == set(document["finals"]["tails"])
    for name, (batch_size, slices) in timed.items():
        assert_metered(slices, watts=300)
        assert document["finals"]["tails"][name]["energy_j"] == pytest.approx(joules_per_item(batch_size, slices))
    assert document["conditions"]["device"]["throttled"] == {"power cap": 1.0}
    assert "GPU throttled" in [each["code"] for each in document["warnings"]]
    reported = "\n".join(report.study(document))
    assert "| incumbent" in reported
    assert "| numpy-default |" in reported
    assert "| batch_size=64" in reported
    cpu = tftune(*words, "--time-budget", "1s", "--trials", "1", cwd=tmp_path, env=env)
    assert json.loads(cpu.stdout)["study"] != document["study"]
    emitted = tftune("emit", document["study"], "--json", cwd=tmp_path, env=env)
    assert json.loads(emitted.stdout)["gpu"] == "0"
    checked = tftune("check", document["study"], "--time-budget", "3s", "--json", cwd=tmp_path, env=env)
    assert checked.returncode in (0, 1), checked.stderr


@pytest.mark.tensorflow
def test_a_search_for_less_energy_runs_over_the_driver(card: Card, tmp_path: Path) -> None:
    words = ["search", str(PACKAGES / "product.py"), "--framework", "numpy", "--device", "gpu", "--objective", "energy"]
    ended = tftune(*words, "--time-budget", "8s", "--json", cwd=tmp_path, env=card(watts=200))
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert (document["objective"], document["finals"]["unit"]) == ("energy", "J/item")
    timed = finals_slices(tmp_path, document["study"])
    assert set(timed) == set(document["finals"]["rates"])
    most = max(len(slices) for _, slices in timed.values())
    for name, (batch_size, slices) in timed.items():
        assert_metered(slices, watts=200)
        joules = [joules_per_item(batch_size, [each]) for each in slices]
        if len(slices) == most:  # the rate of one that missed a round is adjusted for it
            assert min(joules) <= document["finals"]["rates"][name] <= max(joules)


@pytest.mark.tensorflow
def test_a_driver_that_goes_in_the_middle_fails_trials_and_keeps_the_others(card: Card, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tuner", "search", str(PACKAGES / "product.py"), "--framework", "numpy"]
    words += ["--device", "gpu", "--time-budget", "60s", "--json"]
    search = subprocess.Popen(
        words, cwd=tmp_path, env=card(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert search.stderr is not None
        rows = (line for line in search.stderr if re.match(r"\d+ ", line))
        next(rows), next(rows)  # two trials are done
        card(lost=1)
        _, rest = search.communicate(timeout=60)
    finally:
        search.kill()
    assert search.returncode == 3
    said = " ".join(rest.split())
    assert "gpu cannot be read any more: GPU is lost; all earlier measurements are kept" in said or "CUDA_ERROR" in said
    env = card()
    shown = tftune("show", "last", "--json", cwd=tmp_path, env=env)
    assert [trial["status"] for trial in json.loads(shown.stdout)["history"]].count("ok") >= 2


def test_a_setting_that_needs_too_much_memory_limits_the_batch() -> None:
    settings = [Setting.of({"batch_size": size}) for size in (8, 64, 512)]
    trials = [
        Trial(number=i, setting=setting, status=status)
        for i, (setting, status) in enumerate(zip(settings, (Status.OK, Status.OOM, Status.OOM), strict=True))
    ]
    assert too_large_batch(trials) == 64


# --- TensorFlow without a driver, which is what a stock wheel is here


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("state", "libraries", "reason"),
    [
        ({}, ("libcuda.so.1", "libnvidia-ml.so.1"), "libcudart.so.12"),
        ({}, ("libnvidia-ml.so.1",), "NVIDIA's driver is not there (libcuda.so.1 cannot be loaded)"),
        ({"cuda": 0}, ("libcuda.so.1", "libnvidia-ml.so.1"), "CUDA does not start: "),
    ],
)
def test_the_stock_wheel_says_why_it_sees_no_gpu(
    state: dict[str, int], libraries: tuple[str, ...], reason: str, card: Card, driver: Path, tmp_path: Path
) -> None:
    """It is built for CUDA: without its libraries, without a driver, and with one that does not start."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in libraries:
        (folder / name).symlink_to(driver / name)
    env = card(**state) | {"LD_LIBRARY_PATH": str(folder)}
    ended = tftune("inspect", "lenet5", "--device", "gpu", cwd=tmp_path, env=env)
    assert ended.returncode == 2, ended.stdout
    said = " ".join(ended.stderr.split())
    assert "TensorFlow sees no GPU: " in said
    assert reason in said
    if reason == "libcudart.so.12":
        assert "libcudnn.so.9" in said
        assert "this build is for CUDA 12" in said


# --- the plan for a machine with a GPU


def test_a_step_of_the_plan_leaves_a_file_or_a_reason_and_ends_in_time(tmp_path: Path) -> None:
    def ran(file: str, code: str, limit_s: float = 60.0) -> str:
        return plan.run(plan.Step(file=file, words=[sys.executable, "-c", code], limit_s=limit_s), tmp_path)

    assert ran("fine.txt", "print('a table')") == ""
    assert ran("finding.txt", "print('slower'); raise SystemExit(1)") == ""
    assert ran("bad.txt", "import sys; print('tftune: no memory', file=sys.stderr); sys.exit(3)") == (
        "exit code 3: tftune: no memory"
    )
    interrupted = "import sys, time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('so far'); sys.exit(130)"
    assert ran("interrupted.txt", interrupted, limit_s=2.0) == ""
    assert ran("silent.txt", "import time; time.sleep(60)", limit_s=1.0).startswith("exit code ")
    assert {path.name for path in tmp_path.glob("*.txt")} == {"fine.txt", "finding.txt", "interrupted.txt"}


def test_the_plan_skips_what_is_there_and_fits_its_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [step.file for step in plan.steps(tmp_path, "gpu")]
    assert len(set(files)) == len(files)
    (tmp_path / files[0]).touch()
    started: list[str] = []

    def run(step: plan.Step, _: Path) -> str:
        started.append(step.file)
        return "exit code 3: no memory"

    monkeypatch.setattr(plan, "run", run)
    monkeypatch.setattr(sys, "argv", ["plan", str(tmp_path), "--minutes", "1.5"])
    plan.main()
    assert started == [file for file in files if not file.startswith(("tests", "benchmarks"))]  # those need 100 s
    assert len((tmp_path / "failures.txt").read_text().splitlines()) == len(started)
