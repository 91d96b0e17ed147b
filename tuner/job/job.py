"""A job: a request resolved on this machine, and on the framework of the target interpreter.

It knows what its models are fed with, and which batch sizes their inputs leave possible.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tuner import inherited
from tuner.child.outputs import text_of
from tuner.devices import cpu
from tuner.devices.device import HOST, Device
from tuner.devices.registry import DEFAULT as DEFAULT_DEVICE
from tuner.errors import BadInputError
from tuner.frameworks.framework import Build, Framework
from tuner.identity import digest
from tuner.job.interference import check_memory, check_own_settings, check_placeholders, literal, set_by_itself
from tuner.job.parsed import ParsedRequest, parse_request
from tuner.job.request import MAY_CHANGE, SearchRequest
from tuner.machine.exits import captured
from tuner.machine.libraries import PRELOADABLE, find_library
from tuner.measure.objective import Objective
from tuner.measure.planning import ENERGY_S, slice_s
from tuner.measure.warning import ADVICE, Code, MeasurementWarning, input_warnings
from tuner.model.graph import Features, features, precision, read
from tuner.plain import to_plain
from tuner.result.inspection import WorkloadResult
from tuner.space.deployment import PRELOAD, Deployment
from tuner.space.setting import Setting
from tuner.space.space import Canonicalize, Space, resolve
from tuner.study.subject import Subject, subject_of, workload_facts
from tuner.trial.audit import Auditor, Seen, unapplied
from tuner.trial.exporting import GRAPH, cached_folder, described_inputs, export
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Target
from tuner.trial.outcome import ReadyReport, Status, TrialFailure
from tuner.trial.running import CommandLauncher
from tuner.workload import pyfile
from tuner.workload.feed import BATCH, InputFacts, facts_of, made_otherwise
from tuner.workload.pyfile import TRAINING
from tuner.workload.workload import Execution, Kind, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ParsedRequest):
    """A request resolved on this machine."""

    env: dict[str, str]
    ignored_variables: list[str]
    build: Build
    space: Space
    libraries: Mapping[str, str]
    """The paths of what can be preloaded here, by the value that asks for it."""
    notes: tuple[str, ...] = ()
    """What of the request is not taken as it was typed."""
    doubts: tuple[MeasurementWarning, ...] = ()
    """What of a command makes its answers doubtful."""
    seen_devices: tuple[str, ...] = ()
    """What the framework calls the device, where that is not the CPU."""
    seen: Seen = field(default_factory=Seen)
    """What the processes of this job were seen to be; filled while they start."""
    batch_note: str = ""
    """Which batch sizes the model's inputs leave possible, where others were asked for too."""
    seen_outputs: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """The shapes of the outputs, by batch size, as processes of this job reported them."""

    @property
    def slice_s(self) -> float:
        """Return how long (s) a slice of its processes lasts."""
        return max(slice_s(self.workload.rate), self.energy_slice_s)

    @property
    def energy_slice_s(self) -> float:
        """Return how long (s) a slice has to last for what is asked of energy, 0 where nothing is."""
        return ENERGY_S if self.needs_energy else 0.0

    @property
    def needs_energy(self) -> bool:
        """Return whether a trial whose energy is not known is worth nothing."""
        return self.objective is Objective.ENERGY or self.limits.power_w is not None

    def energy_j(self) -> float | None:
        """Return what the device has taken (J); raises TrialFailure where that is needed, and cannot be read."""
        joules = self.device.energy_j()
        if joules is None and self.needs_energy:
            raise TrialFailure(Status.FAILED, "the energy meter cannot be read any more: is the driver gone?")
        return joules

    @property
    def environment(self) -> dict[str, str]:
        """Return the inherited variables that change timings without being knobs: part of what the study is."""
        return timing_variables(self.env, self.framework, self.device)

    @property
    def subject(self) -> Subject:
        """Return what a study of this job is of."""
        device = self.device.describe()
        if self.seen_devices:
            device |= {"seen_as": list(self.seen_devices)}
        if self.feed is not None:
            device |= {"feed": self.feed}
        of = self.machine, device, self.build, self.workload, self.space, self.environment
        return subject_of(*of, inputs=self.inputs)

    @property
    def inputs(self) -> tuple[InputFacts, ...]:
        """Return what tftune feeds to the models once they are exported; none of those that make their own inputs."""
        return () if self.workload.command is not None else inputs_of(self.models, map(self._folder, self.models))

    @property
    def workload_warnings(self) -> list[MeasurementWarning]:
        """Return what of a command is doubtful, or of inputs and seen outputs shows that work may be missing."""
        return [*self.doubts, *input_warnings(self.inputs, self.seen_outputs, self.batch_note)]

    def audit_failure(
        self, setting: Setting, deployment: Deployment, facts: ReadyReport, *, member: int | None = None
    ) -> str | None:
        """Return why a setting does not hold in a process that is ready, None if nothing speaks against it.

        The shapes of its outputs are kept in `seen_outputs`. `member` is the number of a member of an ensemble, which
        has a part of the setting.
        """
        if member is None and facts.outputs is not None:
            self.seen_outputs.setdefault(str(setting.batch_size), facts.outputs)
        own = setting if member is None else self.space.member_setting(setting, member)
        self.see(deployment, facts)
        if self.seen.not_finite is None and setting == self.space.reference:
            self.seen.not_finite = text_of(facts.not_finite)
        return unapplied(self.auditor.audit(own, deployment, facts.effective))

    def see(self, deployment: Deployment, facts: ReadyReport) -> None:
        """Take note of what a process that is ready shows besides its setting."""
        self.seen.see(self.framework.pinned(facts.effective), deployment, self.machine)

    @property
    def auditor(self) -> Auditor:
        """Return what processes are compared with."""
        return Auditor(
            catalogue=self.space.catalogue,
            build=self.build,
            machine=self.machine,
            libraries=self.libraries,
            device=self.device.kind,
        )

    def tell_notes(self, notify: Callable[[str], None]) -> None:
        """Call `notify` with each note and doubt, and before these with the variables that trials do not inherit."""
        if self.ignored_variables:
            notify(f"ignored in the trials, though set in your environment: {', '.join(self.ignored_variables)}")
        for note in (*self.notes, *(f"{each.observation}; {ADVICE[each.code]}" for each in self.doubts)):
            notify(note)

    def launcher(self, *, notify: Callable[[str], None] = lambda _: None) -> FreshLauncher | CommandLauncher:
        """Make the workload ready to be run, and return what starts new processes of it.

        A model is exported, unless that was done before; a command is run once. `notify` is called with a line before
        what may take long, and if a run prints several numbers. Raises BadInputError where that fails.
        """
        if self.workload.command is None:
            self.export(notify=notify)
            for model, described in zip(self.models, self.described_inputs(), strict=True):
                check_batch(model, described, self.space)
            return FreshLauncher(target=self.target())
        command_launcher = CommandLauncher(
            command=self.workload.command,
            base_env=self.env,
            folder=self.workload.path,
            deadline_s=self.deadline_s,
            energy_j=self.energy_j,
            out_of_memory=self.device.out_of_memory,
            see_pinned=lambda pinned, deployment: self.seen.see(pinned, deployment, self.machine),
        )
        run = command_launcher.run_once(self.space.reference, self.space.deployment(self.space.reference))
        if len(run.metrics) > 1:
            ends = f"{min(run.metrics):g} to {max(run.metrics):g} {run.unit}".rstrip()
            notify(f"the command prints {len(run.metrics)} numbers, {ends}: the median is used")
        return command_launcher

    @property
    def models(self) -> tuple[Workload, ...]:
        """Return the workload, or the members of an ensemble."""
        return self.workload.members or (self.workload,)

    def export(self, *, notify: Callable[[str], None] = lambda _: None) -> list[Path]:
        """Write each model, unless that was done before, and return their folders; raises BadInputError.

        That is done on the CPU: what is written names no device, and serves all of them. `notify` is called with a line
        before each that is written.
        """
        write = functools.partial(
            export,
            python=self.python,
            env=self.env | cpu.DEVICE.environment(),
            deadline_s=self.export_deadline_s,
            notify=notify,
        )
        folders = [write(model, self.framework, self.build) for model in self.models]
        for model, folder in zip(self.models, folders, strict=True):
            if model.kind == Kind.PYTHON:
                check_own_settings(folder, model, self.framework, self.space, notify)
        return folders

    def has_fixed_batch(self) -> bool:
        """Return whether no input of one of the models leaves its batch open; they have to be exported."""
        return any(fixed_batch_sizes(described) is not None for described in self.described_inputs())

    def described_inputs(self) -> list[list[dict[str, Any]]]:
        """Return what each of the models takes; they have to be exported."""
        return [described_inputs(self._folder(model)) for model in self.models]

    def features(self) -> Features | None:
        """Return what is known of the graph of an exported model; None of others, or where nothing is."""
        if self.workload.command is not None or self.workload.members:
            return None
        return self.features_of(self.workload)

    def features_of(self, model: Workload) -> Features | None:
        """Return what is known of the graph of one of the models, None where nothing is."""
        graph = read(self._folder(model) / GRAPH)
        return None if graph is None else features(graph)

    def precision_of(self, facts: ReadyReport) -> str | None:
        """Return what a process of this job computes in, as it tells; None where that is not known."""
        graphs = [read(self._folder(model) / GRAPH) for model in self.models]
        of_graphs = {None if graph is None else precision(graph) for graph in graphs}
        of_graph = of_graphs.pop() if len(of_graphs) == 1 else None
        return self.framework.precision(facts.effective, of_graph, has_tf32=self.device.has_tf32())

    def target(self) -> Target:
        """Return what the processes of this job have in common; its model has to be exported before one is ready."""
        assert self.framework.child is not None  # a command has no such processes
        target = Target(
            python=self.python,
            framework=self.framework.child,
            device=self.device.child,
            out_of_memory=self.device.out_of_memory,
            feed=self.feed,
            energy_j=self.energy_j,
            base_env=self.env,
            workload=self.workload,
            folder=self._folder(self.workload),
            deadline_s=self.deadline_s,
            audit_failure=self.audit_failure,
            is_early=self.space.catalogue.is_early,
        )
        members = [
            replace(
                target,
                workload=model,
                folder=self._folder(model),
                audit_failure=functools.partial(self.audit_failure, member=number),
            )
            for number, model in enumerate(self.workload.members)
        ]
        return replace(target, members=tuple(members))

    def _folder(self, model: Workload) -> Path:
        return cached_folder(model, self.framework, self.build)

    def study_stem(self, seed: int) -> str:
        """Return the name of the study that this job continues: equal jobs have equal names."""
        key = [
            self.machine.id,
            self.build.id,
            self.workload.fingerprint,
            self.workload.execution.value,
            self.space.fingerprint,
            self.objective.value,
            to_plain(self.limits),
            self.environment,
            seed,
            *self.device.identity(),
            *([] if self.feed in (None, HOST) else [self.feed]),
            *([] if self.workload.rate is None else [self.workload.rate]),
            *made_otherwise(self.inputs),
            *(["planned"] if self.planned else []),
        ]
        graph = self.workload.execution is Execution.GRAPH
        executed = "" if graph else f"-{self.workload.execution}"
        return f"{self.workload.name}-{self.workload.mode}{executed}-{digest(key, length=8)}"


def prepare(checked: ParsedRequest) -> Job:
    """Probe the build and resolve the space on it; raises BadInputError, and writes no result."""
    framework = checked.framework
    env, ignored = trial_environment(framework, checked.device)
    _check_preload(env)
    build = _probe(checked, env | cpu.DEVICE.environment())
    env |= framework.environment(build, checked.device.kind)
    seen_devices = framework.seen_devices(checked.python, env, build, checked.device)
    spelling = framework.canonicalizer(build, checked.machine)
    unavailable = framework.unavailable(build, checked.machine)
    job = _resolved(checked, build, env, ignored, spelling=spelling, unavailable=unavailable)
    framework.check(build, [*job.space.baselines.values(), *job.space.points, *job.space.groups])
    if checked.workload.command is not None:
        check_placeholders(checked.workload.command, job.space)
        check_memory(checked.workload.command, checked.limits)
    overriding = [f"{name}={env[name]}" for name in framework.overriding if name in env]
    notes = [f"{each} is inherited; a library that reads it heeds no other number of threads" for each in overriding]
    notes += [*checked.workload.notes, *_respelt(checked, job.space)]
    return replace(job, notes=tuple(notes), doubts=_doubts(checked, job.space), seen_devices=seen_devices)


def _doubts(checked: ParsedRequest, space: Space) -> tuple[MeasurementWarning, ...]:
    """Return what of a command makes its answers doubtful, each kind once; nothing of a model."""
    command, framework = checked.workload.command, checked.framework
    if command is None:
        return ()
    is_unknown = not checked.is_python_known and framework.child is not None
    found = {
        Code.WRONG_WAY: command.notes,
        Code.UNTOLD: [*literal(command, space)],
        Code.OWN_SETTING: [*set_by_itself(command, space, framework.calls, framework.overriding)],
        Code.WHOSE_KNOBS: [f"the knobs belong to {framework.title} in {checked.python}"] if is_unknown else [],
    }
    return tuple(code.seen("; ".join(texts)) for code, texts in found.items() if texts)


def feasible(job: Job, *, notify: Callable[[str], None] = lambda _: None) -> Job:
    """Return a prepared job with those of its batch sizes alone that the inputs of its models leave possible.

    It is as it was where that is all of them, or none: starting it says why. `notify` is called with what is left out.
    A Python file makes its inputs for any batch size.
    """
    asked = [int(size) for size in job.space.domains.get("batch_size", ())]
    is_found = any(model.kind not in (Kind.PYTHON, Kind.COMMAND) for model in job.models)
    if not is_found or len(asked) < 2 or job.space.total_batch is not None:
        return job
    job.export(notify=notify)
    described = job.described_inputs()
    possible = possible_sizes(asked, described)
    if possible in ([], asked):
        return job
    reasons = (
        why_fixed(model.name, own)
        for model, own in zip(job.models, described, strict=True)
        if fixed_batch_size(own) is not None
    )
    note = f"{next(reasons)}: {left_out(asked, possible)}"
    notify(note)
    return replace(prepare(replace(job, batch_sizes=possible)), batch_note=note)


def _respelt(checked: ParsedRequest, space: Space) -> Iterator[str]:
    """Yield what stands for a pin that is the same on this machine in other words."""
    for name, text in checked.pins.items():
        value = space.pins.get(name)
        if value is not None and checked.catalogue.knob(name).parse(text, checked.machine) != value:
            yield f"--set {name}={text}: {value} is the same on this machine, and stands for it"


def elsewhere(checked: ParsedRequest, build: Build) -> Job:
    """Return a request as it would be with a build, or on a machine, that is not here: none of it can be run."""
    env, ignored = trial_environment(checked.framework, checked.device)
    env |= checked.framework.environment(build, checked.device.kind)
    return _resolved(checked, build, env, ignored, spelling=lambda _, value: value, unavailable={})


def _probe(checked: ParsedRequest, env: Mapping[str, str]) -> Build:
    """Return the build; where a command's interpreter has none, say that a command can do without."""
    try:
        return checked.framework.probe(checked.python, env)
    except BadInputError as error:
        if checked.workload.command is None:
            raise
        hint = "or add --framework command, which needs nothing of the program"
        raise BadInputError(error.message, f"{error.hint}; {hint}", log=error.log) from error


def timing_variables(env: Mapping[str, str], framework: Framework, device: Device) -> dict[str, str]:
    """Return the variables that change a framework's timings on a device without being knobs."""
    prefixes = framework.timing_prefixes + device.timing_prefixes
    return {name: value for name, value in sorted(env.items()) if name.startswith(prefixes)}


def trial_environment(framework: Framework, device: Device) -> tuple[dict[str, str], list[str]]:
    """Return what trials inherit of this process's environment, and the names of the variables that they do not."""
    env, ignored = framework.catalogue.scrub(inherited.environment())
    return env | device.environment(), ignored


def _check_preload(env: Mapping[str, str]) -> None:
    """Raise BadInputError for an inherited preload that does not load: the loader only warns, and goes on without."""
    if PRELOAD not in env:
        return
    loader_output = captured(["/bin/true"], env=env).stderr
    failed = re.search(r"object '([^']*)' from LD_PRELOAD cannot be preloaded \(([^)]*)\)", loader_output)
    if failed:
        raise BadInputError(
            f"{PRELOAD} names {failed[1]}, which cannot be loaded ({failed[2]})", f"install it, or unset {PRELOAD}"
        )


def describe_workload(request: SearchRequest) -> WorkloadResult:
    """Return the workload and its features; raises BadInputError. Nothing is measured or stored."""
    checked = parse_request(request, stores=False)
    if checked.workload.members:
        raise BadInputError(f"{checked.workload.name} is an ensemble", "show its models one at a time")
    job = prepare(checked)
    job.export()
    file = pyfile.read(job.workload.path) if job.workload.kind is Kind.PYTHON else None
    own = fixed_batch_size(job.described_inputs()[0])
    workload = job.workload if own is None else replace(job.workload, batch_size=own)
    return WorkloadResult(
        workload=workload_facts(workload, job.inputs),
        modes=file.modes if file else (job.workload.mode,),
        source=file.source if file else "",
        features=job.features(),
    )


# ---- the space of a request ------------------------------------------------------------------------------------------


def _resolved(
    checked: ParsedRequest,
    build: Build,
    env: dict[str, str],
    ignored: list[str],
    *,
    spelling: Canonicalize,
    unavailable: Mapping[str, str],
) -> Job:
    """Return the job of a request on a build; `spelling` and `unavailable` are what the build says of the machine."""
    libraries = {name: str(path) for name in PRELOADABLE if (path := find_library(name)) is not None}
    untold = _has_fixed_batch(checked)
    space = resolve(
        checked.file,
        catalogue=checked.catalogue,
        machine=checked.machine,
        build=build,
        workload=checked.workload,
        pins=checked.pins,
        batch_sizes=checked.batch_sizes or ([checked.workload.batch_size] if untold else None),
        passes_batch_size=not untold,
        fixed_batch=checked.objective.has_fixed_batch,
        splits_batch=checked.objective is Objective.LATENCY,
        inherited=env,
        libraries=libraries,
        spelling=spelling,
        with_groups=checked.with_groups and _may_be_several(checked),
        unavailable={**unavailable, **_concurrency_unavailable(checked), **_numerics_unavailable(checked)},
        device=checked.device.kind,
        maker=checked.device.maker,
    )
    parsed = {each.name: getattr(checked, each.name) for each in fields(ParsedRequest)}
    return Job(**parsed, env=env, ignored_variables=ignored, build=build, space=space, libraries=libraries)


def _concurrency_unavailable(checked: ParsedRequest) -> dict[str, str]:
    """Return why knobs of several calls at once stay out; raises BadInputError where one is asked for all the same."""
    reasons: dict[str, str] = {}
    if checked.workload.mode == TRAINING:
        reasons["streams"] = "training steps change one model, so they run one after another"
        if int(checked.pins.get("streams", "1")) > 1:
            raise BadInputError(f"streams={checked.pins['streams']}: {reasons['streams']}", "remove it")
    if checked.objective is Objective.LATENCY:
        reasons["streams"] = "--objective latency times one batch at a time"
    return reasons


def _numerics_unavailable(checked: ParsedRequest) -> dict[str, str]:
    """Return why knobs that compute in another precision stay out; raises BadInputError where one is asked for."""
    if checked.may_change_numerics:
        return {}
    on, knobs = (checked.device.kind, checked.device.maker), checked.catalogue.knobs
    names = [name for name, knob in knobs.items() if knob.changes_numerics and knob.why_not_on(*on) is None]
    pinned = next((name for name in names if name in checked.pins), None)
    if pinned is not None:
        raise BadInputError(
            f"{pinned}={checked.pins[pinned]} changes numerics", f"add --numerics {MAY_CHANGE} to allow that"
        )
    reason = f"it changes numerics, which --numerics {MAY_CHANGE} allows"
    return {name: reason for name in names if name in checked.file.domains}


def _may_be_several(checked: ParsedRequest) -> bool:
    """Return whether a workload may run in several processes for more throughput: a model that serves requests.

    Several processes on one GPU share it by turns, so that there is nothing to gain without more than that.
    """
    workload = checked.workload
    if checked.device.kind != DEFAULT_DEVICE:
        return False
    is_model = workload.command is None and not workload.members
    return is_model and workload.mode != TRAINING and checked.objective is not Objective.LATENCY


def _has_fixed_batch(checked: ParsedRequest) -> bool:
    """Return whether a command is not told a batch size: it has no place for one, and nobody asked for one."""
    command = checked.workload.command
    is_requested = checked.batch_sizes is not None or "batch_size" in checked.pins
    return command is not None and "batch_size" not in command.placeholders and not is_requested


# ---- the batches that inputs leave open -----------------------------------------------------------------------------


def inputs_of(models: Sequence[Workload], folders: Iterable[Path]) -> tuple[InputFacts, ...]:
    """Return what tftune feeds to each input of models; none of those that make their own, or are not exported yet."""
    named = [model.name if len(models) > 1 else "" for model in models]
    try:
        described = [described_inputs(folder) for folder in folders]
    except FileNotFoundError:
        return ()
    return tuple(facts for name, own in zip(named, described, strict=True) for facts in facts_of(own, name))


def fixed_batch_sizes(described: Sequence[Mapping[str, Any]]) -> set[int] | None:
    """Return the batch sizes that are written into the inputs of a model; None where one of them is open."""
    if any(None in each["shape"] for each in described):
        return None
    return {each["shape"][each["batch_axis"]] for each in described if each["batch_axis"] is not None}


def fixed_batch_size(described: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the one batch size that the inputs of a model leave possible; None where one of them is open."""
    sizes = fixed_batch_sizes(described)
    return None if sizes is None else min(sizes) if len(sizes) == 1 else 1


def why_fixed(model: str, described: Sequence[Mapping[str, Any]]) -> str:
    """Return in words what keeps a model at one batch size; `model` is its name."""
    if not described:
        return f"{model} has no inputs, and so no batch"
    size = fixed_batch_size(described) if fixed_batch_sizes(described) else None
    whole = next((each for each in described if each.get("given_batch_at") is not None), None)
    if size is None and whole is not None:
        sizes = list(whole["shape"])
        size = sizes.pop(whole["given_batch_at"])
        without = f"{whole['known_as']}={','.join(map(str, sizes)) or BATCH}" + (
            f" --batch-size {size}" if size > 1 else ""
        )
        return (
            f"--input-shape gives {model} whole shapes, so a call is one item (if they have the batch, leave it out: "
            f"--input-shape {without})"
        )
    return f"the inputs of {model} have " + ("no batch dimension" if size is None else f"the fixed batch size {size}")


def possible_sizes(asked: Sequence[int], models: Iterable[Sequence[Mapping[str, Any]]]) -> list[int]:
    """Return those batch sizes that the inputs of all models leave possible."""
    fixed = {size for size in map(fixed_batch_size, models) if size is not None}
    return [size for size in asked if fixed <= {size}]


def left_out(asked: Sequence[int], possible: Sequence[int]) -> str:
    """Return in words which batch sizes are not tried."""
    sizes = [str(size) for size in asked if size not in possible]
    return f"{', '.join(sizes)} {'is' if len(sizes) == 1 else 'are'} left out"


def check_batch(model: Workload, described: Sequence[Mapping[str, Any]], space: Space) -> None:
    """Raise BadInputError where no input leaves its batch open, and another batch size is asked for."""
    size = fixed_batch_size(described)
    if size is not None and set(space.domains["batch_size"]) != {size}:
        is_shared = space.total_batch == size
        hint = "add --set instances=1: its batch cannot be shared" if is_shared else f"use --batch-size {size}"
        hint = hint if size > 0 else "save the model with an open batch: nothing is computed for a batch of no items"
        hint += (
            "" if model.kind == "keras" or is_shared else _other_reading(described, set(space.domains["batch_size"]))
        )
        if model.kind == "keras" and fixed_batch_sizes(described):  # a model has the batch of its first call, too
            hint += ", or save the model with an open batch: let it begin with keras.Input(shape=…)"
        raise BadInputError(why_fixed(str(model.path), described), hint)


def _other_reading(described: Sequence[Mapping[str, Any]], asked: set[Any]) -> str:
    """Return how to say that first dimensions are no batch, or that they are one, of the size that is asked for."""
    shapes = {each["known_as"]: each["shape"] for each in described if each["shape"]}
    size = fixed_batch_size(described)
    if size == 0 or (size == 1 and {shape[0] for shape in shapes.values()} != asked):
        return ""
    condition = "the first dimension is the batch" if size == 1 else "a call is one item"
    sizes = {name: [BATCH, *shape[1:]] if size == 1 else shape for name, shape in shapes.items()}
    texts = (f"--input-shape {name}={','.join(map(str, each))}" for name, each in sizes.items())
    return f", or, if {condition}, {' '.join(texts)}"


def tell_outputs(
    outputs: Mapping[str, Mapping[str, Sequence[int]]], not_finite: str | None, notify: Callable[[str], None]
) -> None:
    """Call `notify` with what the outputs show, for answers without a place for it: shapes, and what is not finite."""
    strange = [Code.NOT_FINITE.seen(not_finite)] if not_finite else []
    for warning in [*input_warnings((), outputs), *strange]:
        notify(f"{warning.code}: {warning.observation}; {ADVICE[warning.code]}")
