"""What a request means on this machine: names, files and numbers understood, and what cannot be asked refused."""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.child.arrivals import PATIENCE
from tuner.devices import registry as devices
from tuner.devices.device import FEEDS, HOST, Device
from tuner.errors import BadInputError, unknown_name
from tuner.frameworks import registry
from tuner.frameworks.framework import Framework
from tuner.job.request import LAUNCHERS, MAY_CHANGE, NUMERICS, TRIAL_TIMEOUT, SearchRequest
from tuner.machine.host import Machine, detect
from tuner.measure.budget import Budget, make_budget, parse_duration
from tuner.measure.constraint import Limits
from tuner.measure.objective import OF_MODELS, Objective
from tuner.measure.planning import slice_s
from tuner.paths import cache_dir, check_writable
from tuner.quantity import MILLISECONDS, WATTS, Quantity
from tuner.space import spacefile
from tuner.space.catalogue import Catalogue
from tuner.space.ensemble import catalogue_of
from tuner.space.groups import parse_sizes
from tuner.space.spacefile import SpaceFile
from tuner.study.storage import check_storage
from tuner.workload import workload as workloads
from tuner.workload.pyfile import INFERENCE, TRAINING
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

_MIN_MARGIN, _MAX_MARGIN = 0.001, 0.5
_PYTHON = re.compile(r"(.*/)?python[\d.]*")
_STARTERS = {"chrt", "env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout"}
"""Programs that run the rest of their words here, with the environment and the PATH that they have."""
_EXPORT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A parsed and validated request. Nothing has been started or written for it."""

    machine: Machine
    device: Device
    framework: Framework
    workload: Workload
    catalogue: Catalogue
    """The knobs and baselines of the framework, with those of an ensemble where the workload is one."""
    file: SpaceFile
    pins: dict[str, str]
    batch_sizes: list[int] | None
    objective: Objective
    same_latency: bool
    """Whether the fastest setting whose call takes no longer than the default's is looked for, too."""
    python: Path
    is_python_known: bool
    """Whether it is the interpreter of the workload for certain: of most commands only `--python` tells."""
    limits: Limits
    budget: Budget
    deadline_s: float
    """The most time (s) that becoming ready, or a slice, may take."""
    export_deadline_s: float
    """The most time (s) that writing the model may take."""
    storage_url: str
    feed: str | None
    """Where the inputs of a step are; None on the CPU."""
    may_change_numerics: bool
    with_groups: bool
    """Whether settings of several processes are tried too, where the space is of one."""
    predict: bool | None
    """Whether a model of the machine says where to begin; None: where that costs little."""
    planned: bool = False
    """Whether a designed list of settings is measured, instead of a search and its finals."""


def parse_request(request: SearchRequest, *, stores: bool = True, machine: Machine | None = None) -> ParsedRequest:
    """Understand a request, in milliseconds; raises BadInputError with what was found and what was expected.

    A request that `stores` nothing needs no place to write. Knobs and values are those of this machine, or of another.
    """
    machine = machine or detect()
    framework, workload = find_workload(request.workload)
    catalogue = catalogue_of(registry.catalogue(framework), [member.name for member in workload.members])
    catalogue = catalogue if workload.command is None else catalogue.of_command()
    if request.launcher not in LAUNCHERS:
        raise unknown_name("launcher", request.launcher, LAUNCHERS)
    deadline_s = parse_duration(request.trial_timeout, option="--trial-timeout")
    check_margin(request.margin)
    pins = _pins(request.pins, catalogue, machine)
    if workload.batch_problem is not None and request.batch_size is None and "batch_size" not in pins:
        raise workload.batch_problem
    if request.seed < 0:
        raise BadInputError(f"--seed is {request.seed}", "expected 0 or more")
    _check_rate(workload, deadline_s)
    device = find_device(request.workload, framework)
    if workload.members and device.kind != devices.DEFAULT:
        raise BadInputError(
            f"an ensemble cannot run on {device.name}: its members share cores", "search its models one at a time"
        )
    if request.numerics not in NUMERICS:
        raise unknown_name("word for --numerics", request.numerics, NUMERICS)
    objective = _objective(request, workload, device)
    named_python = _own_interpreter(workload) if request.python is None else request.python
    return ParsedRequest(
        budget=make_budget(request.trials, request.time_budget),
        deadline_s=deadline_s,
        # Where nothing is said of it, writing a model has more time than a trial: it is done once.
        export_deadline_s=_EXPORT_S if request.trial_timeout == TRIAL_TIMEOUT else deadline_s,
        objective=objective,
        same_latency=request.objective is None and objective is Objective.THROUGHPUT and workload.mode != TRAINING,
        limits=_limits(request, workload, device),
        machine=machine,
        device=device,
        feed=_feed(request.workload.feed, device),
        may_change_numerics=request.numerics == MAY_CHANGE,
        framework=framework,
        workload=workload,
        catalogue=catalogue,
        file=space_file(
            request.space or device.space, framework, machine, catalogue=catalogue, default_batch=workload.batch_size
        ),
        pins=pins,
        batch_sizes=parse_batch_sizes(request.batch_size),
        python=interpreter(named_python),
        is_python_known=named_python is not None or workload.command is None,
        storage_url=_storage(request.storage) if stores else request.storage,
        with_groups=request.instances,
        predict=request.predict,
        planned=bool(request.planned),
    )


def check_margin(margin: float) -> None:
    """Raise BadInputError for a share that cannot be a margin."""
    if not 0 < margin <= _MAX_MARGIN:
        raise BadInputError(
            f"the margin is {100 * margin:g} %",
            f"expected more than 0 and at most {100 * _MAX_MARGIN:g} %, such as 2 %",
        )
    if margin < _MIN_MARGIN:  # a share that was typed as a percentage
        meant = max(100 * margin, _MIN_MARGIN)
        raise BadInputError(f"a margin of {100 * margin:g} % cannot be measured", f"did you mean {100 * meant:g} %?")


def find_workload(spec: WorkloadSpec) -> tuple[Framework, Workload]:
    """Return the workload that was asked for, and the framework that runs it; raises BadInputError.

    Where no framework is named, a model file decides, and for all else it is the default.
    """
    named = registry.find(spec.framework) if spec.framework is not None else None
    readers = [registry.reader_of(Path(part)) for part in workloads.parts(spec.words)] if named is None else []
    reader = next((each for each in readers if each is not None), None)
    framework = named or reader or registry.find(registry.DEFAULT)
    _refuse_model_of_another(framework, spec.words)
    workload = workloads.find(spec, framework.suffixes)
    framework.check_workload(workload)
    return framework, workload


def find_device(spec: WorkloadSpec, framework: Framework) -> Device:
    """Return the device that was asked for; raises BadInputError where the framework cannot use it."""
    device = devices.find(spec.device)
    framework.check_device(device)
    return device


def _feed(text: str | None, device: Device) -> str | None:
    """Return where the inputs of a step are, None on the CPU; raises BadInputError."""
    if device.kind == devices.DEFAULT:
        if text is not None:
            raise BadInputError(f"--feed {text} does not apply to the CPU", "leave it out, or add --device gpu")
        return None
    if text is not None and text not in FEEDS:
        raise unknown_name("word for --feed", text, FEEDS)
    return text or HOST


def _refuse_model_of_another(framework: Framework, words: Sequence[str]) -> None:
    """Raise BadInputError for a model file that another framework reads, and this one does not."""
    for path in map(Path, workloads.parts(words)):
        if path.suffix.lower() not in framework.suffixes and (reader := registry.reader_of(path)) is not None:
            raise BadInputError(
                f"{framework.title} does not read {path.suffix} files", f"use --framework {reader.name}"
            )


def space_file(
    name: str,
    framework: Framework,
    machine: Machine,
    *,
    catalogue: Catalogue | None = None,
    default_batch: int = 1,
) -> SpaceFile:
    """Return a space of a framework by its name, or by the path of a file; raises BadInputError.

    It may have the knobs of the `catalogue`, of the framework's own if there is none.
    """
    return spacefile.read(
        name,
        machine,
        catalogue=catalogue or registry.catalogue(framework),
        folder=framework.spaces,
        default_batch=default_batch,
    )


def _check_rate(workload: Workload, deadline_s: float) -> None:
    """Raise BadInputError for a rate so low that a slice with enough requests takes longer than a process may."""
    if workload.rate is not None and PATIENCE * slice_s(workload.rate) >= deadline_s:
        needed_s = PATIENCE * slice_s(workload.rate)
        raise BadInputError(
            f"--rate {workload.rate:g}: a slice with enough requests takes {slice_s(workload.rate):.0f} s and may take "
            f"twice that, and --trial-timeout is {deadline_s:g} s",
            f"give a larger --rate, or --trial-timeout {needed_s + 10:.0f}s",
        )


def _limits(request: SearchRequest, workload: Workload, device: Device) -> Limits:
    if request.max_power_w is not None:
        _check_energy("--max-power", device)
    if request.max_p99_ms is not None and workload.command is not None:
        raise BadInputError(
            "--max-p99 does not work for a command: tftune cannot see its steps",
            "let the command print its latency, and add --minimize",
        )
    return Limits(
        p99_s=None if request.max_p99_ms is None else positive(request.max_p99_ms, MILLISECONDS, "--max-p99") / 1000,
        memory_bytes=None if request.max_memory is None else parse_size(request.max_memory),
        power_w=None if request.max_power_w is None else positive(request.max_power_w, WATTS, "--max-power"),
    )


def _check_energy(option: str, device: Device) -> None:
    """Raise BadInputError where no energy can be measured."""
    reason = device.why_no_energy()
    if reason is not None:
        raise BadInputError(f"{option} needs an energy meter: {reason}", f"leave {option} out, or use another machine")


def _objective(request: SearchRequest, workload: Workload, device: Device) -> Objective:
    text = request.objective or Objective.THROUGHPUT.value
    if text not in OF_MODELS:
        raise unknown_name("objective", text, OF_MODELS)
    if text == Objective.ENERGY:
        _check_energy("--objective energy", device)
        if workload.rate is not None:
            raise BadInputError("--rate with --objective energy", "leave one of them out")
        if workload.command is None:
            return Objective.ENERGY
    if text == Objective.CAPACITY:
        _check_capacity(request, workload)
        return Objective.CAPACITY
    if workload.rate is not None:
        if text == Objective.LATENCY:
            raise BadInputError(
                "--rate with --objective latency", "leave --objective out: with --rate it is the mean response time"
            )
        return Objective.RESPONSE
    if workload.command is None:
        return Objective(text)
    if text != Objective.THROUGHPUT:
        raise BadInputError(
            f"--objective {text} does not apply to a command",
            "the number that it prints is the objective; add --minimize if smaller is better",
        )
    return Objective.MINIMIZE if workload.command.minimize else Objective.MAXIMIZE


def _check_capacity(request: SearchRequest, workload: Workload) -> None:
    """Raise BadInputError where there is no capacity to search for."""
    asked = f"--objective {Objective.CAPACITY}"
    if request.max_p99_ms is None:
        raise BadInputError(f"{asked} needs a limit on the p99", "add it to a search, e.g. --max-p99 50ms")
    if workload.rate is not None:
        raise BadInputError(f"--rate with {asked}", "leave --rate out: the highest rate is the answer")
    reasons = {
        "a command takes no requests from tftune": workload.command is not None,
        "training answers no requests": workload.mode != INFERENCE,
        "the models of an ensemble answer together": bool(workload.members),
    }
    for reason, applies in reasons.items():
        if applies:
            raise BadInputError(f"{asked}: {reason}", "search the inference of one model, or leave --objective out")


def parse_size(text: str | float, *, option: str = "--max-memory") -> int:
    """Return the bytes of `2GiB`, `800 MB` or `1.5G` (powers of 1024, but of 1000 with a plain B); BadInputError.

    A number is one of bytes.
    """
    text = f"{text / 1024}K" if isinstance(text, int | float) else text
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT])(i?B?)", text.strip(), re.IGNORECASE)
    if not match:
        raise BadInputError(f"{option} is '{text}'", "expected e.g. 800MiB or 2GiB")
    base = 1000 if match[3].upper() == "B" else 1024
    size = float(match[1]) * base ** (1 + "KMGT".index(match[2].upper()))
    if not 1 <= size < 2**63:
        raise BadInputError(f"{option} is '{text}', {size:.3g} bytes", "expected e.g. 800MiB or 2GiB")
    return int(size)


def positive(text: float | str, quantity: Quantity, option: str) -> float:
    """Return the number of an option; raises BadInputError for one that is not above 0, or infinite."""
    value = quantity.parse(text, option)
    if not 0 < value < math.inf:
        raise BadInputError(f"{option} is {value:g}", "expected a finite number above 0")
    return value


def _pins(texts: Sequence[str], catalogue: Catalogue, machine: Machine) -> dict[str, str]:
    """Return the pins by knob; raises BadInputError for what no build could take."""
    pins: dict[str, str] = {}
    for text in texts:
        if "=" not in text:
            raise BadInputError(f"--set {text} has no value", "expected KNOB=VALUE, e.g. --set intra_op=2")
    for part in itertools.chain.from_iterable(catalogue.assignments(text) for text in texts):
        name, _, value = part.partition("=")
        catalogue.knob(name).parse(value, machine)
        if name in pins and pins[name] != value:
            raise BadInputError(f"--set {name} is given twice, {pins[name]} and {value}", "keep one of them")
        pins[name] = value
    return pins


def parse_batch_sizes(text: str | None) -> list[int] | None:
    """Return the sizes of `--batch-size`, None if it was not given; raises BadInputError."""
    if text is None:
        return None
    if ".." in text:
        return parse_sizes(text, "--batch-size")
    try:
        sizes = [int(part) for part in words(text)] or [int(text)]
    except ValueError:
        raise BadInputError(f"--batch-size is '{text}'", "expected whole numbers, e.g. 1,2,4,8 or 1..64") from None
    if min(sizes) < 1:
        raise BadInputError(f"--batch-size is '{text}'", "expected whole numbers of at least 1")
    return sizes


def _storage(url: str) -> str:
    """Return the storage's URL if it and the cache can be written."""
    check_writable(cache_dir(), "set TFTUNE_CACHE to a folder that you can write to")
    check_storage(url)
    return url


def _own_interpreter(workload: Workload) -> str | None:
    """Return the interpreter that a command begins with, also behind what only starts it here; None of others."""
    typed = () if workload.command is None else workload.command.words
    named = next((at for at, word in enumerate(typed) if _PYTHON.fullmatch(word)), None)
    if named is None:
        return None
    is_started_here = named == 0 or Path(typed[0]).name in _STARTERS
    has_own_path = any(word.startswith("PATH=") for word in typed[:named])
    return typed[named] if is_started_here and not has_own_path else None


def words(text: str) -> list[str]:
    """Return the words of a list that is separated by commas, each once."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def interpreter(text: str | None) -> Path:
    """Return the path of the interpreter that `--python` names, this one if it was not given; raises BadInputError.

    Its links are left alone: a virtual environment is known by its own path.
    """
    if text is None:
        return Path(sys.executable)
    of_environment = f"{text}/bin/python"
    executable = shutil.which(of_environment if os.path.isfile(of_environment) else text)  # noqa: PTH113  # as it may be forbidden
    if executable is None:
        is_line = len(text.split()) > 1 and shutil.which(text.split()[0]) is not None
        what = "alone, without arguments" if is_line else "of a Python executable"
        raise BadInputError(f"no interpreter at {text}", f"give --python the path {what}")
    return Path(executable).absolute()
