"""The worker process: loads one workload, times slices of steps on request, and reports the results.

    worker COMMAND_FD REPORT_FD SPEC

SPEC is a JSON object. Commands come and reports go as one JSON object a line, on pipes of their own; stdout
and stderr belong to the framework and are kept by the parent as evidence.

    {"do": "export", ...}    writes the workload's model, reports "exported"
    {"do": "time", ...}      loads it, warms up, reports "ready"; then obeys, until the command pipe ends:
        {"slice_s": s}       runs whole steps for at least s seconds, or answers requests, reports "timed" at their end
                             and "slice" when their outputs have been looked at
        {"batch_size": n}    makes inputs of that batch, warms up again, reports "batch"
        {"load": {...}}      answers requests in batches, see `arrivals.under_load`, reports "timed" and "load"
        {"operators": [n, b]}  runs n steps of batches of b, reports "operators" with what each operator took
        {"timeline": [n, k]} runs 4nk steps, reports "timeline" with when what ran in half of them
    any failure              reports "failure" with its kind: failed, oom or invalid
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import traceback
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Sequence

from . import adapter, arrivals, blame, callers, cpu, effective, inputs
from .adapter import Adapter, Device
from .callers import CLOCK, Callers
from .outputs import (
    InvalidOutputError,
    agree,
    check_first,
    check_later,
    check_learns,
    counted,
    not_finite,
    sample,
)

# What TensorFlow puts around the reason of an operator that failed.
BOILERPLATE = re.compile(
    r"Graph execution error:\s+(?:Detected at node .{1,200}? defined at \(most recent call last\):\s+"
    r"<stack traces unavailable>\s+)?|\s*\[\[\{\{node [^}]*\}\}\]\]|\s*\[Op:[^\]]*\]",
    re.DOTALL,
)
MAX_MESSAGE = 600  # characters of an error's own text
MAX_FRAMES = 3  # of the user's own, that are told of an error
# The warm-up: the first step, which traces and compiles, then windows of at least so long until two in a row differ
# by at most so much, but no new window once it has taken this long in all.
WINDOW_S = 0.25
STEADY = 0.05
WARM_UP_CAP_S = 2.5
ONE_STEP_S = 1e-9  # of a slice of one step
OWN_SETTINGS = "own_settings.json"  # beside an exported model: what the workload's own code has set meanwhile

# What XLA and C++ call it, in exceptions that have no name for it; a device's libraries have codes of their own.
OUT_OF_MEMORY_CODES = ("RESOURCE_EXHAUSTED", "std::bad_alloc")

Report = Dict[str, Any]
Arrays = Dict[str, Any]
Check = Callable[[Any], None]


class LoadedWorkload:
    """A loaded model, whose step can be made for one batch size after another."""

    def __init__(self, spec: Report, framework: Adapter, device: Device) -> None:
        """Import the framework, start its threads and load the model; `facts` tell what that took."""
        started = CLOCK()
        framework.load()
        imported, alone, variables = CLOCK(), effective.threads(), effective.variables()
        self.device = device
        self.learns = spec["mode"] == inputs.TRAINING
        self.n_callers = spec["streams"]
        self.given_cpus = spec["given"]
        with open(os.path.join(spec["folder"], inputs.INPUTS), encoding="utf-8") as file:
            self.described: list[Report] = json.load(file)
        self.model = framework.Model(spec, self.described)
        # First the workload's own code: what it sets of the framework has to be in force before anything runs.
        self.first = self.model.arguments(spec["batch_size"])
        before, self.since = effective.threads(), effective.log_size()
        self.model.start()
        context, after = CLOCK(), effective.threads()
        self.model.load()
        changed = effective.changed_variables(variables)
        # What a setting sets was there before; what else code sets may be secret, and is not kept with a study.
        self.own_variables = {name: value for name, value in changed.items() if name in variables}
        self.affinities: FrozenSet[str] = frozenset()
        self.trained = False
        self.facts = {"import_s": imported - started, "context_at_s": context, "load_s": CLOCK() - context}
        # What the threads and their masks are is told once steps have run.
        self.thread_snapshots = (alone, before, after)

    def state(self) -> Report:
        """Return what has taken effect of the setting."""
        log = effective.own_log(self.since)
        state = dict(effective.state(*self.thread_snapshots, log), given=self.given_cpus)
        self.affinities |= effective.affinities()
        return dict(state, variables=self.own_variables, **self.model.state(log))

    def state_if_moved(self) -> Optional[Report]:
        """Return the state again if a thread may run on other CPUs than any could before; None if none may."""
        return None if effective.affinities() <= self.affinities else self.state()

    def prepare(self, batch_size: int) -> tuple[Callers, Report, Check]:
        """Return (callers, facts, check): the callers run the workload on inputs that are already there.

        `check(outputs)` raises InvalidOutputError for outputs of a later step that are no result.
        """
        arrays, self.first = self.first or self.model.arguments(batch_size), ()
        self.device.reset_peak()
        began = CLOCK()
        try:
            together = Callers([self.model.step(arrays) for _ in range(self.n_callers)], self.device.wait)
            all_outputs = together.steps[0]()
            outputs = self.model.floats(all_outputs)
            self.device.wait()
            found = not_finite(outputs)
            check_first(outputs, found, learns=self.learns)
        except Exception as error:
            error.explained = blame.explained(error, self.described, batch_size)  # type: ignore[attr-defined]
            raise
        first = CLOCK()
        at_random: Optional[bool] = None

        def check(later: Any) -> None:
            nonlocal at_random
            values = self.model.floats(later)
            if found and at_random is None:
                at_random = not agree(outputs, values)
            check_later(found, values, learns=self.learns, at_random=bool(at_random))
            if self.learns:
                check_learns(outputs, values)

        windows, again = warm_up(together, first - began, getattr(self.device, "LEAST_WARM_UP_S", 0.0))
        for each in again:
            check(each)
        if self.n_callers > 1:
            self.check_concurrent(together, outputs)
        # A model that was trained at another batch size has other losses than one that begins.
        output_sample = None
        if not (self.learns and self.trained):
            output_sample = sample(arrays, outputs, self.model.floats(again[0]), learns=self.learns)
        facts = {
            "first_step_s": first - began,
            "warm_up": callers.report_of(windows[-1]),
            "settled": settled(windows),
            "memory_bytes": self.memory_bytes(),
            "shared_bytes": self.device.shared_memory(),
            "sample": output_sample,
            "not_finite": counted(outputs, found),
            "outputs": self.output_shapes(all_outputs),
        }
        self.trained = self.learns
        return together, facts, check

    def memory_bytes(self) -> Optional[int]:
        """Return the most memory (bytes) that it has held on the device; None where nothing tells."""
        told = self.device.peak_memory()
        ask = getattr(self.model, "device_memory", None)
        return ask() if told is None and ask is not None else told

    def output_shapes(self, outputs: Any) -> Optional[Report]:
        """Return the shapes of the outputs by name; None where the framework's part does not tell."""
        ask = getattr(self.model, "output_shapes", None)
        return None if ask is None else ask(outputs)

    def check_concurrent(self, together: Callers, alone: Arrays) -> None:
        """Raise InvalidOutputError where calls at the same time compute something else than calls one by one.

        `alone` are the outputs of a call while no other ran. All callers then begin a call at the same moment, again
        and again for a while. Nothing can be said of a model whose outputs differ from call to call anyway.
        """
        if not agree(alone, self.model.floats(together.steps[0]())):
            return
        stop = CLOCK() + WINDOW_S
        while CLOCK() < stop:
            for each in together.slices(ONE_STEP_S):
                if not agree(alone, self.model.floats(each["outputs"])):
                    raise InvalidOutputError(
                        "its outputs change when %d calls run at the same time: use one stream" % self.n_callers
                    )


def warm_up(together: Callers, spent_s: float, least_s: float = 0.0) -> tuple[list[list[Report]], list[Any]]:
    """Run windows until the steps are steady or the cap is reached; return them, and the last outputs of each caller.

    `spent_s` is what the first step took. The rule is the same for every setting; where steps are so long that the
    first one reaches the cap, there is one window of one step: two steps have to agree in what they compute. A device
    that needs `least_s` has that time for windows whatever its first step took, which was mostly loading and compiling.
    """
    windows: list[list[Report]] = []
    outputs: list[Any] = []
    cap_s = WARM_UP_CAP_S
    if least_s:
        spent_s, cap_s = 0.0, WARM_UP_CAP_S + least_s
    while not windows or (spent_s < cap_s and (spent_s < least_s or not settled(windows))):
        window = together.slices(WINDOW_S)
        outputs = [each.pop("outputs") for each in window]
        spent_s += max(each["elapsed_s"] for each in window)
        windows.append(window)
    return windows, outputs


def settled(windows: list[list[Report]]) -> bool | None:
    """Return whether the last two windows agree; None where there are not two."""
    if len(windows) < 2:
        return None
    before, last = (callers.step_time(window) for window in windows[-2:])
    return abs(math.log(last / before)) <= STEADY


def failure(
    error: BaseException,
    workload: str,
    out_of_memory: Iterable[str] = (),
    codes: Iterable[str] = (),
    adapters: Sequence[str] = (),
) -> Report:
    """Return the report of an exception, with the line of the workload that it came from, or of the adapter.

    `out_of_memory` are the framework's own names of exceptions that tell of that, `codes` what the device's libraries
    say, and `adapters` the folders of both's child code. The traceback goes to stderr, which is kept.
    """
    traceback.print_exc()
    kinds = {"MemoryError": "oom", "InvalidOutputError": "invalid", **dict.fromkeys(out_of_memory, "oom")}
    name = type(error).__name__
    # TensorFlow's autograph puts a traceback of its own before the message, and Keras sets parts of it in bold.
    error_text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).rpartition("%s: " % name)[2]
    error_text = BOILERPLATE.sub(" ", error_text)
    if any(code in error_text for code in (*OUT_OF_MEMORY_CODES, *codes)):
        kinds[name] = "oom"
    message = inputs.shortened(error_text, MAX_MESSAGE)
    if not isinstance(error, (inputs.WorkloadError, cpu.CpusLostError)):
        message = "%s: %s" % (name, message)
    reason, advice = "", getattr(error, "advice", "") or blame.advice(error, os.path.dirname(workload))
    if not advice and kinds.get(name) != "oom":
        reason, advice = getattr(error, "explained", ("", ""))
    frames = blame.own_frames(error, os.path.join(os.path.dirname(workload), ""), adapters)
    mistake, owner = blame.adapter_mistake(error, adapters)
    if mistake:
        frames = mistake
        advice = advice or "report it to %s, whose code failed, unless %s gives what it cannot take" % (owner, workload)
    if frames:
        message += " (line %d of %s)" % (frames[-1].lineno or 0, os.path.basename(frames[-1].filename))
    if reason:
        message += "; %s" % reason
    return {
        "report": "failure",
        "kind": kinds.get(name, "failed"),
        "message": message,
        "advice": advice,
        "frames": "".join(traceback.format_list(frames[-MAX_FRAMES:])),
    }


def serve(spec: Report, commands: Iterable[str], send: Callable[[Report], None]) -> None:
    """Load, then obey until the parent closes the command pipe."""
    worker_device = adapter.load_device(spec["device"])
    workload = LoadedWorkload(spec, adapter.load_adapter(spec["framework"]), worker_device)
    model: Any = workload.model  # not every one can tell of its operators or its timeline
    together, first, check = workload.prepare(spec["batch_size"])
    timed_by = arrivals.of_spec(together, spec)
    facts = dict(workload.facts, **first, effective=workload.state())
    mask = os.sched_getaffinity(0)
    send(dict(facts, report="ready"))
    batch_size: int = spec["batch_size"]
    by_size = {batch_size: (together, first, check)}
    for line in commands:
        command = json.loads(line)
        if "batch_size" in command:
            timed_by.close()
            batch_size = command["batch_size"]
            together, facts, check = workload.prepare(batch_size)
            timed_by = arrivals.of_spec(together, spec)
            send(dict(facts, report="batch"))
        elif "load" in command:
            for size in command["load"]["sizes"]:
                if size not in by_size:  # a load of no time only makes them warm
                    by_size[size] = workload.prepare(size)
            report = {}
            if command["load"]["duration_s"]:
                of_sizes = {size: of[0] for size, of in by_size.items() if size in command["load"]["sizes"]}
                report = arrivals.under_load(of_sizes, worker_device.wait, command["load"])
            send({"report": "timed"})
            cpu.check_cpus(mask)
            for size, outputs in report.pop("outputs", {}).items():
                by_size[size][2](outputs)
            send(dict(report, report="load", memory_bytes=workload.memory_bytes()))
        elif "operators" in command:
            n_steps, n_items = command["operators"]
            send(dict(model.operators(model.arguments(n_items), n_steps), report="operators"))
        elif "timeline" in command:
            send(dict(model.timeline(model.arguments(batch_size), command["timeline"]), report="timeline"))
        else:
            timed = timed_by.slices(command["slice_s"])
            send({"report": "timed"})
            cpu.check_cpus(mask)
            for each in timed:
                check(each.pop("outputs"))
            report = dict(callers.report_of(timed), report="slice", memory_bytes=workload.memory_bytes())
            moved = workload.state_if_moved()
            send(report if moved is None else dict(report, effective=moved))


def export(spec: Report, framework: Adapter) -> None:
    """Export a workload, and write what its code has set meanwhile; of one that is made from another, what that has."""
    made_from = os.path.join(spec.get("from", ""), OWN_SETTINGS)
    if os.path.exists(made_from):
        framework.export(spec)
        shutil.copy(made_from, spec["folder"])
        return
    has_code = spec["kind"] == "python"
    if has_code:
        framework.load()  # what that sets is not the workload's
    before = effective.variables()
    framework.export(spec)
    variables = effective.changed_variables(before) if has_code else {}
    threads: Dict[str, int] = getattr(framework, "own_threads", dict)() if has_code else {}
    with open(os.path.join(spec["folder"], OWN_SETTINGS), "w", encoding="utf-8") as file:
        constants = inputs.CONSTANTS.get(spec["workload"], {})
        notes: List[List[str]] = getattr(framework, "own_notes", list)()
        json.dump({"variables": variables, "threads": threads, "constants": constants, "notes": notes}, file)


def run(command_fd: int, report_fd: int, spec: Report) -> None:
    """Do what `spec` asks for, and end the process."""
    commands = os.fdopen(command_fd, "r")
    reports = os.fdopen(report_fd, "w", buffering=1)

    def send(report: Report) -> None:
        reports.write(json.dumps(report) + "\n")

    out_of_memory: Iterable[str] = ()
    try:
        if spec.get("cpus"):
            cpu.keep_to(spec["cpus"])
        if "framework" in spec:
            out_of_memory = getattr(adapter.load_adapter(spec["framework"]), "OUT_OF_MEMORY", ())
        if spec["do"] == "export":
            export(spec, adapter.load_adapter(spec["framework"]))
            send({"report": "exported"})
        else:
            serve(spec, commands, send)
    except BaseException as error:
        folders = [spec.get("framework", ""), os.path.dirname(spec.get("device", ""))]
        adapters = [each for each in folders if each and os.path.realpath(each) != blame.HERE]  # the CPU's is ours
        send(failure(error, spec["workload"], out_of_memory, spec.get("out_of_memory", ()), adapters))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skip the framework's slow shutdown


def main(arguments: list[str]) -> None:
    """Run as a fresh interpreter."""
    run(int(arguments[0]), int(arguments[1]), json.loads(arguments[2]))
