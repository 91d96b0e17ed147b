"""Tables and lines for people, drawn with rich from the document; nothing here prints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.devices import registry as devices
from tuner.measure.warning import input_warnings
from tuner.quantity import duration_text, energy_text, gib_text, ms_text, percent, plural, ratio_text
from tuner.report.layout import table
from tuner.result.study import (
    NoiseResult,
    StudyResult,
    TrialResult,
    WarningResult,
)
from tuner.result.wording import cores_text
from tuner.space.deployment import Deployment
from tuner.space.values import Value
from tuner.stats.noise import MIN_PROCESS_SD
from tuner.study.subject import Subject
from tuner.trial.outcome import Status
from tuner.workload.feed import InputFacts, inputs_text

_TOLD_DEVIATION = 1e-3  # of outputs: what rounding does is not told


def setting_text(setting: Mapping[str, Value], fixed_knobs: Collection[str] = ()) -> str:
    """Return a setting as one would type it, without the knobs that are held at one value anyway."""
    return " ".join(f"{name}={value}" for name, value in setting.items() if name not in fixed_knobs)


def processes_text(deployment: Deployment) -> str:
    """Return several processes, with the CPUs of each where they are kept apart."""
    places = f", each on its own CPUs: {' | '.join(deployment.cpu_sets)}" if deployment.cpu_sets else ""
    return f"{deployment.processes} processes{places}"


def fixed_knobs(subject: Subject) -> list[str]:
    """Return the knobs that have one value only, in the space and in all baselines."""
    settings = [baseline.setting for baseline in subject.baselines.values()]
    return [
        name
        for name, knob in subject.knobs.items()
        if knob.active and len({*knob.values, *(setting[name] for setting in settings)}) == 1
    ]


def host(subject: Subject) -> RenderableType:
    """Return the machine and the build."""
    machine = subject.machine
    smt = f"{machine.threads_per_core} threads per core" if machine.threads_per_core > 1 else "no SMT"
    nodes = len(machine.numa_nodes) or 1
    quota = "none" if machine.cpu_quota is None else f"{machine.cpu_quota:g} CPUs"
    limit = machine.memory_limit_bytes
    rows = table("", "", show_header=False)
    rows.add_row(
        "machine",
        f"{machine.cpu_model}: {plural(machine.physical_cores, 'physical core')}, {smt}, "
        f"{plural(machine.sockets, 'socket')}, {plural(nodes, 'NUMA node')}",
    )
    rows.add_row("", f"CPUs in the affinity mask: {machine.affinity} ({machine.logical_cpus} of {machine.online_cpus})")
    rows.add_row("", f"CPU quota (cgroup): {quota}")
    rows.add_row(
        "",
        f"memory: {gib_text(machine.memory_bytes, 1)}" + (f", limited to {gib_text(limit, 1)}" if limit else ""),
    )
    if subject.device["name"] != "cpu":
        rows.add_row("device", *device_lines(subject.device)[:1])
        for line in device_lines(subject.device)[1:]:
            rows.add_row("", line)
    for number, line in enumerate(subject.framework.build_lines(subject.runtime)):
        rows.add_row("" if number else "build", line)
    return rows


def device_lines(device: Mapping[str, Any]) -> list[str]:
    """Return what a device of its own tells of itself, in a few lines, and what the framework calls it."""
    seen_as = ", ".join(device.get("seen_as", ()))
    return devices.named(device["name"]).lines(device) + ([f"the framework calls it {seen_as}"] if seen_as else [])


def searched_lines(subject: Subject) -> list[Text]:
    """Return what is searched and where, in a few lines."""
    active = [name for name, knob in subject.knobs.items() if knob.active and len(knob.values) > 1]
    inactive = [name for name, knob in subject.knobs.items() if not knob.active]
    lines = [
        Text(f"on {place_text(subject)}, {build_text(subject)}"),
        Text(f"searching {plural(subject.points, 'setting')} of {', '.join(active)}, and the recommended ones"),
    ]
    if inactive:
        lines.append(Text(f"no effect here: {', '.join(inactive)} (`tftune inspect` shows why)", style="dim"))
    return [*lines, *space_notes(subject)]


def place_text(subject: Subject) -> str:
    """Return what computes: the cores, or a device of its own and the cores beside it."""
    model = subject.device.get("model")
    return cores_text(subject.machine) if model is None else f"{model}, {cores_text(subject.machine)}"


def build_text(subject: Subject) -> str:
    """Return the build, and the inherited variables that change its timings."""
    variables = [f"{name}={value}" for name, value in subject.variables.items()]
    build = subject.framework.build_lines(subject.runtime)[0]
    return f"{build}, with {' '.join(variables)}" if variables else build


def knobs(subject: Subject) -> RenderableType:
    """Return the knobs with their values, or the reason why they are off."""
    active = table("knob", "!set by", "values", title=f"search space '{subject.space}': {subject.points:,} settings")
    off: dict[str, list[str]] = {}
    fixed = fixed_knobs(subject)
    for name, knob in subject.knobs.items():
        if knob.active and name not in fixed:
            active.add_row(name, knob.variable or knob.set_by, ", ".join(map(str, knob.values)))
        elif not knob.active:
            off.setdefault(knob.reason, []).append(name)
    values = {name: subject.knobs[name].values[0] for name in fixed}
    lines = [Text(f"fixed: {setting_text(values)}", style="dim")] if fixed else []
    lines += [Text(f"inactive: {', '.join(names)}: {reason}", style="dim") for reason, names in off.items()]
    lines += space_notes(subject)
    for name, knob in subject.knobs.items():
        if knob.dropped:
            lines.append(Text(f"{name}: values not available: {knob.dropped}", style="dim"))
    return Group(active, *lines)


def space_notes(subject: Subject) -> list[Text]:
    """Return what the space did not ask about, where that may decide more than what it did."""
    return [Text(note) for note in subject.framework.space_notes(subject.runtime, subject.knobs)]


def baselines(subject: Subject) -> RenderableType:
    """Return the baselines as resolved here, each distinct setting once."""
    rendered = table("baseline", "!setting", "same as", title="baselines")
    shown_names: set[str] = set()
    for name, baseline in subject.baselines.items():
        if name not in shown_names:
            rendered.add_row(name, setting_text(baseline.setting, fixed_knobs(subject)), ", ".join(baseline.same_as))
            shown_names.update(baseline.same_as)
    return rendered


def hint_line(name: str, setting: Mapping[str, Value], subject: Subject) -> Text:
    """Return what is tried right after the baselines, and what hints at it."""
    source = next((guide.source for guide in subject.framework.width_guides if guide.name == name), name)
    return Text(
        f"tried right after the baselines: {setting_text(setting, fixed_knobs(subject))}  ({source})", style="dim"
    )


def trials(study: StudyResult) -> RenderableType:
    """Return the trials of a study."""
    title = f"trials of {study.study}"
    is_metered = any(trial.energy_j is not None for trial in study.history)
    energy = [">energy per item"] if is_metered else []
    rendered = table(">#", "!setting", ">ratio to reference", ">timed", "", ">first step", *energy, title=title)
    best, fixed = study.incumbent, fixed_knobs(study)
    for trial in study.history:
        is_best = best is not None and trial.setting == best.setting
        first = "" if trial.first_step_s is None else f"{trial.first_step_s:.2f} s"
        joules = [energy_text(trial.energy_j)] if is_metered else []
        rendered.add_row(*trial_row(trial, incumbent=is_best, fixed_knobs=fixed), first, *joules)
    return rendered


def trial_row(trial: TrialResult, *, incumbent: bool, fixed_knobs: Collection[str] = ()) -> tuple[str | Text, ...]:
    """Return the cells of one trial; `fixed_knobs` are left out of its setting."""
    notes = [", ".join(trial.baselines)] if trial.baselines else []
    if trial.status is not Status.OK:
        return (
            str(trial.number),
            setting_text(trial.setting, fixed_knobs),
            Text(trial.status, style="red"),
            "",
            Text(" ".join([*notes, trial.message]), style="red"),
        )
    if trial.pruned:
        notes.append("stopped early")
    if trial.over_limit:
        memory = trial.peak_memory_bytes
        figures = [f"p99 {ms_text(trial.p99_ms)} ms", *([gib_text(memory)] if memory else [])]
        figures += [] if trial.power_w is None else [f"{trial.power_w:.0f} W"]
        notes.append(f"over the limit: {', '.join(figures)}")
    if not trial.steady:
        notes.append("not steady")
    if trial.alone:
        notes.append("processes one at a time")
    if trial.deviation is not None and trial.deviation >= _TOLD_DEVIATION:
        notes.append(f"outputs differ by {percent(trial.deviation, 2)}")
    if incumbent:
        notes.insert(0, "incumbent")
    return (
        str(trial.number),
        setting_text(trial.setting, fixed_knobs),
        ratio_text(trial.ratio, trial.low, trial.high),
        f"{trial.timed_s:.0f} s",
        Text("; ".join(notes), style="green" if incumbent else "dim"),
    )


def inputs(fed: Sequence[InputFacts]) -> list[Text]:
    """Return what tftune feeds to a model, in a line; nothing where that makes its own inputs."""
    return [Text(f"inputs: {inputs_text(fed)}")] if fed else []


def inputs_with_warnings(fed: Sequence[InputFacts]) -> list[RenderableType]:
    """Return the same with what may be wrong with it, for answers that have no other warnings."""
    observations = [WarningResult.of(each) for each in input_warnings(fed, {})]
    return [*inputs(fed), *([warnings(observations)] if observations else [])]


def warnings(observations: Sequence[WarningResult]) -> RenderableType:
    """Return the warnings, each with what to do."""
    lines = [Text.assemble((f"{each.code}: ", "yellow"), f"{each.found}; {each.advice}") for each in observations]
    return Group(*lines) if lines else Text("no warnings", style="dim")


def noise_line(study: StudyResult) -> RenderableType:
    """Return what the search found of the noise, and how much its figure shrank in the finals."""
    parts, shrinkage = [], study.shrinkage
    if study.noise is not None:
        parts.append(noise_text(study.noise))
    if shrinkage is not None:
        parts.append(
            f"speed-up over {study.default}: {shrinkage.search:.3f} in the search, {shrinkage.finals:.3f} in the finals"
        )
    return Text("; ".join(parts), style="dim")


def noise_text(noise: NoiseResult) -> str:
    """Return the noise in a line."""
    block_sd, process = percent(noise.block_sd), f"{process_sd_text(noise.process_sd)} between processes"
    if noise.process_sd == 0:
        process = "that of processes included"
    assumed = f" (mostly assumed: only {plural(noise.n_blocks, 'block')} measured)" if noise.assumed else ""
    return f"noise: {block_sd} per block, {process}; noise floor of the finals {percent(noise.floor)}{assumed}"


def process_sd_text(process_sd: float, digits: int = 1, sign: str = "") -> str:
    """Return the between-process standard deviation, which the noise of blocks may hide."""
    return "too small to measure" if process_sd <= MIN_PROCESS_SD else f"{sign}{percent(process_sd, digits)}"


def incumbent_line(study: StudyResult) -> RenderableType:
    """Return the best of the search, with its own, not yet confirmed, figure."""
    best = study.incumbent
    if best is None:
        return Text("no trial has a result yet", style="yellow")
    return Text(
        f"best setting of the search: {setting_text(best.setting)}  {ratio_text(best.ratio, best.low, best.high)}"
    )


def summary(study: StudyResult) -> RenderableType:
    """Return how the last run went."""
    counted = study.trials
    parts = [f"{counted.ok} trials completed, {counted.pruned} stopped early, {counted.failed} failed"]
    if study.wall_s is not None:
        parts.append(f"{duration_text(study.wall_s)}, {duration_text(study.measured_s)} of it spent measuring")
    if study.search_timed_share is not None:
        parts.append(f"{100 * study.search_timed_share:.0f} % of the search time spent measuring")
    if study.ended_because:
        parts.append(f"search ended: {study.ended_because}")
    return Text("; ".join(parts), style="dim")
