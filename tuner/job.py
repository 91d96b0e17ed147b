"""A search as a user asks for it: everything resolved and checked first, then run."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import psutil
from optuna.exceptions import StorageInternalError
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from tuner.errors import BadInputError, TunerError, unknown
from tuner.identity import digest
from tuner.machine.exclusive import measuring_alone
from tuner.machine.host import Machine, detect
from tuner.measure.finals import FinalsPlan
from tuner.measure.objective import Objective
from tuner.places import DEFAULT_STORAGE, cache_dir, check_writable
from tuner.report import terminal
from tuner.report.document import describe_host, describe_space, describe_workload
from tuner.report.progress import Progress, header, widest_setting
from tuner.runtime.probe import Runtime, probe
from tuner.search.bench import BenchPlan
from tuner.search.budget import Budget, make_budget, parse_duration
from tuner.search.record import SCHEMA, Record, check_storage, create_or_continue, now, open_storage
from tuner.search.sampler import LatticeSampler
from tuner.search.study import Plan, Study
from tuner.space import spacefile
from tuner.space.knob import knob
from tuner.space.setting import scrub
from tuner.space.space import Space, resolve
from tuner.space.spacefile import SpaceFile
from tuner.trial.exporting import export
from tuner.trial.launcher import FreshLauncher, Target
from tuner.workload import workload as workloads
from tuner.workload.workload import Workload

_MAX_PARALLEL_STARTS = 4
_TIMING_PREFIXES = ("LD_", "MALLOC_", "TCMALLOC_", "TF_", "XLA_", "ONEDNN_", "DNNL_", "GLIBC_TUNABLES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a search as they were typed."""

    workload: str
    trials: int | None = None
    time_budget: str | None = None
    seed: int = 0
    space: str = "cpu"
    objective: str = "throughput"
    batch_size: str | None = None
    pins: list[str] = field(default_factory=list)
    python: str | None = None
    storage: str = DEFAULT_STORAGE
    threshold: float = 0.02
    trial_timeout: str = "2m"
    fresh: bool = False
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A request whose words are all understood; nothing was started or written for it."""

    machine: Machine
    workload: Workload
    file: SpaceFile
    pins: dict[str, str]
    batch_sizes: list[int] | None
    objective: Objective
    python: Path
    budget: Budget
    deadline_s: float
    storage_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request resolved on this machine."""

    python: Path
    env: dict[str, str]
    ignored_variables: list[str]
    machine: Machine
    runtime: Runtime
    workload: Workload
    space: Space
    objective: Objective

    @property
    def environment(self) -> dict[str, str]:
        """Return the inherited variables that change timings without being knobs: part of what the study is."""
        return {
            name: value
            for name, value in sorted(self.env.items())
            if name.startswith(_TIMING_PREFIXES) and not name.startswith("TF_CPP_")
        }

    def described(self) -> dict[str, Any]:
        """Return machine, runtime, workload and space as plain data."""
        host = describe_host(self.machine, self.runtime) | {"environment": self.environment}
        return host | describe_workload(self.workload) | describe_space(self.space)

    def study_stem(self, seed: int) -> str:
        """Return the name of the study that this job continues: equal jobs have equal names."""
        key = [
            self.machine.id,
            self.runtime.id,
            self.workload.fingerprint,
            self.space.fingerprint,
            self.objective.value,
            self.environment,
            seed,
        ]
        return f"{self.workload.name}-{self.workload.mode}-{digest(key, length=8)}"


def check(request: Request) -> Checked:
    """Understand a request, in milliseconds; raises BadInputError with what was found and what was expected."""
    machine = detect()
    return Checked(
        budget=make_budget(request.trials, request.time_budget),
        deadline_s=parse_duration(request.trial_timeout, option="--trial-timeout"),
        objective=_objective(request.objective),
        machine=machine,
        workload=workloads.load(request.workload),
        file=spacefile.read(request.space, machine),
        pins=_pins(request.pins, machine),
        batch_sizes=_batch_sizes(request.batch_size),
        python=_interpreter(request.python),
        storage_url=_storage(request.storage),
    )


def prepare(checked: Checked) -> Job:
    """Probe the runtime and resolve the space on it; raises BadInputError, and writes no result."""
    env, ignored = scrub(os.environ)
    env |= {"CUDA_VISIBLE_DEVICES": "-1"}  # the device is the CPU; a GPU build must not take the work away
    runtime = probe(checked.python, env)
    return Job(
        python=checked.python,
        env=env,
        ignored_variables=ignored,
        machine=checked.machine,
        runtime=runtime,
        workload=checked.workload,
        space=resolve(
            checked.file,
            machine=checked.machine,
            runtime=runtime,
            workload=checked.workload,
            pins=checked.pins,
            batch_sizes=checked.batch_sizes,
            fixed_batch=checked.objective is Objective.LATENCY,
        ),
        objective=checked.objective,
    )


def run(request: Request, console: Console) -> tuple[Record | None, bool]:
    """Run a search; returns its record and whether it was interrupted. Progress goes to `console`."""
    checked = check(request)
    record: Record | None = None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with measuring_alone(wait=request.wait, waiting=lambda line: console.print(f"waiting: {line}")):
            began_s = time.monotonic()  # a queue before this does not count
            job = prepare(checked)
            _introduce(job, console)
            folder = export(job.workload, job.runtime, python=job.python, env=job.env)
            storage = open_storage(checked.storage_url, create=True)
            assert storage is not None  # create=True
            sampler = LatticeSampler(job.space, seed=request.seed)
            record = create_or_continue(storage, job.study_stem(request.seed), sampler, fresh=request.fresh)
            _remember(record, job, request)
            progress = _progress(record, job, console)
            parallel = _parallel_starts(job.machine)
            try:
                Study(
                    record=record,
                    space=job.space,
                    launcher=FreshLauncher(
                        target=Target(
                            python=job.python,
                            base_env=job.env,
                            workload_path=job.workload.path,
                            folder=folder,
                            mode=job.workload.mode,
                            deadline_s=checked.deadline_s,
                        )
                    ),
                    sampler=sampler,
                    plan=Plan(
                        bench=BenchPlan(objective=job.objective, parallel=parallel + 1),
                        finals=FinalsPlan(parallel=parallel),
                        threshold=request.threshold,
                        together=parallel,
                        free_memory_bytes=lambda: _free_memory_bytes(job.machine),
                    ),
                    budget=checked.budget,
                    events=progress,
                    seed=request.seed,
                    began_s=began_s,
                ).run()
            finally:
                progress.end()
    except (SQLAlchemyError, StorageInternalError) as error:
        first = str(error).strip().splitlines()[0]
        raise TunerError(f"the storage failed: {first}", "what it holds is kept; mend it and run again") from error
    except KeyboardInterrupt:
        console.print("interrupted; every finished trial is kept, and the same command continues")
        return record, True
    return record, False


def _parallel_starts(machine: Machine) -> int:
    """Return how many processes may start at once: about one a CPU, as most of a start is one thread."""
    return min(machine.usable_cpus, _MAX_PARALLEL_STARTS)


def _free_memory_bytes(machine: Machine) -> int:
    """Return the memory that processes may still take, at most nine tenths of the container's limit."""
    free = int(psutil.virtual_memory().available)
    return free if machine.memory_limit_bytes is None else min(free, int(0.9 * machine.memory_limit_bytes))


def _introduce(job: Job, console: Console) -> None:
    described = job.described()
    for part in (terminal.host(described), "", terminal.knobs(described), "", terminal.baselines(described), ""):
        console.print(part)
    if job.ignored_variables:
        console.print(f"not handed to the trials: {', '.join(job.ignored_variables)}, set in your environment")


def _progress(record: Record, job: Job, console: Console) -> Progress:
    done = len(record.trials())
    verb = f"continuing with {done} trials" if done else "beginning"
    widest = widest_setting([*job.space.points, *job.space.baselines.values()])
    progress = Progress(console, widest)
    progress.stage(
        f"study {record.name}: {verb}; ratios are to tf-default at batch size {job.space.reference.batch_size}"
    )
    console.print(header(widest))
    return progress


def _remember(record: Record, job: Job, request: Request) -> None:
    """Put into the record what the study is, once, and when it was last touched."""
    if record.get("schema") is None:
        record.put("objective", job.objective.value)
        record.put("seed", request.seed)
        record.put("described", job.described())
        record.put("created", now())
        record.put("schema", SCHEMA)
    record.put("updated", now())


def _objective(text: str) -> Objective:
    try:
        return Objective(text)
    except ValueError:
        raise unknown("objective", text, list(Objective)) from None


def _pins(texts: list[str], machine: Machine) -> dict[str, str]:
    """Return the pins by knob; raises BadInputError for what no runtime could take."""
    pins: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise BadInputError(f"--set {text}", "expected KNOB=VALUE, e.g. --set intra_op=2")
        knob(name).parse(value, machine)
        if name in pins and pins[name] != value:
            raise BadInputError(f"--set {name} is given twice, {pins[name]} and {value}", "keep one of them")
        pins[name] = value
    return pins


def _batch_sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInputError(f"--batch-size is '{text}'", "expected whole numbers, e.g. 1,2,4,8") from None
    if min(sizes) < 1:
        raise BadInputError(f"--batch-size is '{text}'", "expected numbers of at least 1")
    return sizes


def _storage(url: str) -> str:
    """Return the storage's URL if it and the cache can be written."""
    check_writable(cache_dir(), "set TFTUNE_CACHE to a folder that can be")
    return check_storage(url)


def _interpreter(text: str | None) -> Path:
    """Return the interpreter's path, its links left alone: a virtual environment is known by its own path."""
    if text is None:
        return Path(sys.executable)
    found = shutil.which(text)
    if found is None:
        raise BadInputError(f"no interpreter at {text}", "give --python the path of a Python executable")
    return Path(found).absolute()
