"""When what of a step ran, from the trace of TensorFlow's profiler (`tf.profiler.experimental`), cut into steps.

The profiler writes an `XSpace`: planes (the host, each GPU) have lines (threads, streams) of events. TensorFlow's own
package reads it. What each event means is not decided here: see `tuner.frameworks.tensorflow.timeline`.
"""

from __future__ import annotations

import glob
import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

from ....child.callers import CLOCK
from ....child.inputs import WorkloadError

STEP, CALL = "tftune-step", "tftune-call"
N_CALLS = 30
HOST, GPU = "/host:CPU", "/device:GPU:"
STREAM = "Stream"
MARKS = "ThreadpoolListener::"  # moments, not spans
BEGIN, END, POOL_TASK = MARKS + "StartRegion", MARKS + "StopRegion", "pool task"
DETAILS = ("is_func", "correlation_id")
CUT_OFF = "its trace was cut off: try smaller batches (--batch-size 1..32)"
LEVEL = 3  # 2 leaves out the operators that TensorFlow takes to be cheap
PICO_PER_NANO = 1000
Report = Dict[str, Any]
RawEvent = Tuple[float, float, int, str, Optional[int]]


def traced(step: Callable[[], Any], n_steps: int, n_rounds: int) -> Report:
    """Run steps without the profiler and with it, and return when what ran in those with it.

    In each round blocks of `n_steps` take turns, without, with, with, without: `plain_s` and `traced_s` are what the
    steps of each take (s) as the caller sees them. `lines` are [plane, line], `names` those of events, and
    `blocks` has the steps of each block with it, which are

        [duration (ns), [[index of a line, begin (ns), duration (ns), index of a name, detail or null], ...]]

    where the detail is whether an eager call is one of a function (0 or 1), or the number that a kernel has in common
    with its launch. `calls` are such steps too: eager calls of an operator that does nothing.
    """
    told: Report = {"plain_s": [], "traced_s": [], "lines": [], "names": [], "blocks": []}
    for with_profiler in (False, True, True, False) * n_rounds:
        if with_profiler:
            spaces = profiled(lambda: run(step, n_steps, told["traced_s"], STEP), warm_up=step)
            told["blocks"].append(steps_of(spaces, STEP, n_steps, told))
        else:
            step()  # a block with the profiler has one before it too
            run(step, n_steps, told["plain_s"], None)
    idle = idle_call()
    spaces = profiled(lambda: run(idle, N_CALLS, [], CALL), warm_up=idle)
    told["calls"] = steps_of(spaces, CALL, N_CALLS, told)
    return told


def idle_call() -> Callable[[], Any]:
    """Return an eager call of an operator that has nothing to do: what it takes is what a call takes."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        value, shape = tf.zeros((4,)), tf.constant([4])

    def call() -> Any:
        with tf.device("CPU:0"):
            return tf.raw_ops.Reshape(tensor=value, shape=shape)

    return call


def run(step: Callable[[], Any], n_steps: int, timed: List[float], mark: Optional[str]) -> None:
    """Run steps, and append what each takes (s); with a `mark` they are found in the trace."""
    import tensorflow as tf

    for number in range(n_steps):
        began = CLOCK()
        if mark is None:
            step()
        else:
            with tf.profiler.experimental.Trace(mark, step_num=number, _r=1):
                step()
        timed.append(CLOCK() - began)


def profiled(call: Callable[[], None], warm_up: Callable[[], Any]) -> "List[Any]":
    """Return what the profiler wrote while something ran, which `warm_up` ran before: an `XSpace` for each file."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    profiler = tf.profiler.experimental
    with tempfile.TemporaryDirectory() as folder:
        profiler.start(folder, profiler.ProfilerOptions(host_tracer_level=LEVEL, python_tracer_level=0))
        try:
            warm_up()
            call()
        finally:
            profiler.stop()
        spaces = []
        for path in sorted(glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)):
            space = xplane_pb2.XSpace()
            with open(path, "rb") as file:
                space.ParseFromString(file.read())
            spaces.append(space)
    return spaces


def steps_of(spaces: "List[Any]", mark: str, n_steps: int, told: Report) -> "List[Any]":
    """Return the marked steps of a trace; its lines and names are added to what is told.

    Raises WorkloadError where the profiler says that something went wrong, or has not kept all steps.
    """
    events: List[RawEvent] = []
    for space in spaces:
        if space.errors:
            raise WorkloadError("TensorFlow's profiler failed: %s" % "; ".join(space.errors), CUT_OFF)
        for plane in space.planes:
            if plane.name == HOST or plane.name.startswith(GPU):
                events += events_of(plane, told["lines"])
    numbers = {name: number for number, name in enumerate(told["names"])}
    events.sort(key=lambda event: (event[0], -event[1]))
    steps = []
    for begin, duration in [(begin, duration) for begin, duration, _, name, _ in events if name == mark]:
        inside = [event for event in events if begin <= event[0] < begin + duration and event[3] != mark]
        rows = [
            [line, int(at - begin), int(lasts), numbers.setdefault(name, len(numbers)), detail]
            for at, lasts, line, name, detail in inside
        ]
        steps.append([int(duration), rows])
    told["names"] = list(numbers)
    if len(steps) != n_steps or not all(rows for _, rows in steps):
        whole = sum(bool(rows) for _, rows in steps)
        raise WorkloadError("TensorFlow's profiler kept %d of %d steps" % (whole, n_steps), CUT_OFF)
    return steps


def events_of(plane: Any, lines: "List[List[str]]") -> "List[RawEvent]":
    """Return the events of a plane that last: begin (ns), duration (ns), line, name, detail; its lines are added.

    From where a thread of a pool begins with a task to its end is an event too.
    """
    names = {key: each.name for key, each in plane.event_metadata.items()}
    stats = {key: each.name for key, each in plane.stat_metadata.items()}
    events: List[RawEvent] = []
    for line in plane.lines:
        if plane.name != HOST and not line.name.startswith(STREAM):
            continue  # a summary of the streams
        lines.append([plane.name, line.name])
        task_began: Optional[float] = None
        for event in sorted(line.events, key=lambda each: each.offset_ps):
            name = names[event.metadata_id]
            begin = line.timestamp_ns + event.offset_ps / PICO_PER_NANO
            if name == BEGIN:
                task_began = begin
            elif name == END and task_began is not None:
                events.append((task_began, begin - task_began, len(lines) - 1, POOL_TASK, None))
                task_began = None
            if name.startswith(MARKS):
                continue
            detail = next((number(each) for each in event.stats if stats.get(each.metadata_id) in DETAILS), None)
            events.append((begin, event.duration_ps / PICO_PER_NANO, len(lines) - 1, name, detail))
    return events


def number(stat: Any) -> int:
    """Return a statistic that is a whole number."""
    kind = stat.WhichOneof("value")
    return int(getattr(stat, kind)) if kind in ("int64_value", "uint64_value") else 0
