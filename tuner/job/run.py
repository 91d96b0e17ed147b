"""Running a search: the only place where machine, storage, study and console meet."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path

from msgspec import to_builtins
from rich.console import Console

from tuner.job.advise import hints
from tuner.job.job import Job, prepare
from tuner.job.request import Checked, Request, check
from tuner.job.servers import Servers, free_memory_bytes, parallel_starts
from tuner.machine import conditions
from tuner.machine.exclusive import measuring_alone
from tuner.measure.finals import FinalsPlan
from tuner.model.graph import Features
from tuner.report import terminal
from tuner.report import workload as workloads
from tuner.report.layout import plural
from tuner.report.progress import Progress
from tuner.search.attributes import MEASURED
from tuner.search.plan import BenchPlan, Plan
from tuner.search.record import SCHEMA, Record, now
from tuner.search.sampler import LatticeSampler
from tuner.search.storage import create_or_continue, open_storage, storing
from tuner.search.study import Study
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher
from tuner.trial.running import CommandLauncher


def run(request: Request, console: Console) -> tuple[Record | None, bool]:
    """Run a search; returns its record and whether it was interrupted. Progress goes to `console`."""
    checked = check(request)
    record: Record | None = None
    try:
        with (
            storing(),
            measuring_alone(wait=request.wait, waiting=lambda line: console.print(f"waiting: {line}")),
            contextlib.ExitStack() as cleanup,
        ):
            began_s = time.monotonic()  # a queue before this does not count
            job = prepare(checked)
            say = partial(console.print, soft_wrap=True, markup=False)
            _introduce(job, console)
            servers = None
            if request.launcher == "fork":
                servers = cleanup.enter_context(Servers(job, deadline_s=checked.deadline_s, say=say))
            forks = None if servers is None else servers.first()  # it comes up while the model is exported
            fresh = job.launcher(deadline_s=checked.deadline_s)
            launcher: Launcher = forks or fresh
            features = job.features()
            # As one line: a table's rows begin with a number, and no part of this is to look like one.
            console.print(workloads.line(job.subject.workload, features), soft_wrap=True)
            of_model = isinstance(fresh, FreshLauncher)
            if isinstance(fresh, CommandLauncher):
                console.print(workloads.precision(fresh.usual.elapsed_s), soft_wrap=True)
            console.print()
            storage = open_storage(checked.storage_url, create=True)
            assert storage is not None  # create=True
            hinted = hints(job, features, told=lambda line: console.print(line, soft_wrap=True))
            sampler = LatticeSampler(job.space, seed=request.seed, limits=checked.limits, hints=list(hinted.values()))
            record = create_or_continue(storage, job.study_stem(request.seed), sampler, fresh=request.fresh)
            _remember(record, job, checked, request, features)
            record.put("hints", {name: setting.to_dict() for name, setting in hinted.items()})
            progress = _progress(record, job, console)
            for name, setting in hinted.items():
                console.print(terminal.hint_line(name, setting.to_dict(), job.subject), soft_wrap=True)
            parallel = parallel_starts(job.machine)
            before = conditions.read(job.machine.affinity)
            try:
                Study(
                    record=record,
                    space=job.space,
                    launcher=launcher,
                    finals_launcher=fresh,
                    replicas=(lambda _: ()) if servers is None else servers.replicas,
                    sampler=sampler,
                    plan=Plan(
                        bench=BenchPlan(
                            objective=job.objective,
                            max_pair_s=_max_pair_s(fresh),
                            limits=checked.limits,
                            parallel=parallel,
                            # A command starts anew for every slice, and of each pair every run has its price.
                            gauge_quads=BenchPlan().gauge_quads if of_model else 2,
                            live=BenchPlan().live if of_model else 0,
                            # Of a command nothing is resident between two slices.
                            free_memory_bytes=lambda: free_memory_bytes(job.machine) if of_model else None,
                        ),
                        finals=FinalsPlan(parallel=parallel),
                        margin=request.margin,
                        together=parallel,
                    ),
                    budget=checked.budget,
                    events=progress,
                    seed=request.seed,
                    began_s=began_s,
                ).run()
            finally:
                progress.end()
                seen = conditions.between(before, conditions.read(job.machine.affinity), cpus=job.machine.affinity)
                record.add("conditions", seen.to_dict())
    except KeyboardInterrupt:
        console.print("interrupted; every finished trial is kept, and the same command continues")
        return record, True
    return record, False


def _max_pair_s(launcher: FreshLauncher | CommandLauncher) -> float:
    """Return how long a pair may take: as many slices of a model as are worth it, but three quads of runs."""
    usual_s = BenchPlan().max_pair_s
    return usual_s if isinstance(launcher, FreshLauncher) else max(usual_s, 12 * launcher.usual.elapsed_s)


def _introduce(job: Job, console: Console) -> None:
    subject = job.subject
    for part in (terminal.host(subject), "", terminal.knobs(subject), "", terminal.baselines(subject), ""):
        console.print(part)
    if job.ignored_variables:
        console.print(f"not handed to the trials: {', '.join(job.ignored_variables)}, set in your environment")


def _progress(record: Record, job: Job, console: Console) -> Progress:
    done = len(record.trials())
    verb = f"continuing with {plural(done, 'trial')}" if done else "beginning"
    progress = Progress(console, [*job.space.points, *job.space.baselines.values()], terminal.held(job.subject))
    progress.stage(
        f"study {record.name}: {verb}; ratios are to {job.space.default} at batch size {job.space.reference.batch_size}"
    )
    return progress


def _remember(record: Record, job: Job, checked: Checked, request: Request, features: Features | None) -> None:
    """Put into the record what the study is, once, and when it was last touched."""
    if record.get("schema") is None:
        record.put("objective", job.objective.value)
        record.put("limits", checked.limits.to_dict())
        record.put("asked", request.workload.to_dict() | {"folder": str(Path.cwd())})
        record.put("features", to_builtins(features))
        record.put("python", str(job.python))
        record.put("trial_timeout", request.trial_timeout)
        record.put("seed", request.seed)
        record.put("origin", MEASURED)
        record.put("pins", checked.pins)
        record.put("batch_sizes", checked.batch_sizes)
        record.put("described", to_builtins(job.subject))
        record.put("created", now())
        record.put("schema", SCHEMA)
    record.put("updated", now())
