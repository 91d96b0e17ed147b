"""Where the time of a step goes, from what TensorFlow's profiler saw of it.

An event is a span on a line: a thread of the host, or a stream of a GPU. What is known of their names:

    EagerExecute                        Python has handed something over: an operator, or a function (a graph)
    KernelAndDevice…::Run, within it    that operator is called, and runs; of a function: the caller waits for its graph
    ExecutorState::Process              a thread of the inter-op pool runs nodes of a graph
    NAME:TYPE                           a node of a graph runs; TYPE of a call is a function's name, or PartitionedCall
    CpuExecutable::…                    a program that XLA has compiled runs; the events within it, and on the threads
                                        of Eigen's pool meanwhile, are its kernels, tasks of that pool are parts of
                                        some; BlockUntilReady: its caller waits
    …LaunchKernel…                      the driver of a GPU is asked to run a kernel, which is on a stream later

Of an eager operator the kernel alone is not seen: it is taken to be its call less what the call of an operator takes
that has nothing to do, which is measured beside. What encloses operators on its thread, as a loop does, is none.

Let S be the step, and for sets of spans |A| how long at least one of them lasts: O operators (on a GPU its kernels), C
copies of a GPU, R what the runtime does on any thread, W while a caller waits for its graph, and E all that Python has
handed over. The step is split without remainder into

    operators  |O|                      executor  |O∪C∪R| - |O∪C|  +  |O∪C∪R∪W∪E| - |O∪C∪R∪W|
    copies     |O∪C| - |O|              waiting   |O∪C∪R∪W| - |O∪C∪R|
    python     |S| - |O∪C∪R∪W∪E|
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tuner.frameworks.framework import Part, StepParts
from tuner.frameworks.tensorflow.child.operators import union
from tuner.frameworks.tensorflow.child.timeline import HOST, POOL_TASK

NANO = 1e-9
_POOL = "Eigen"
_HANDED_OVER = "EagerExecute"
_RUN = re.compile(r"KernelAndDevice\w+::Run")
_GRAPH = "ExecutorState::Process"
_COMPILED = "CpuExecutable::"
_AWAITED = "BlockUntilReady"
_NODE = re.compile(r"[^\s:]+:([A-Za-z_]\w*)")
_KERNEL = re.compile(r"[A-Za-z_][\w.\-]*")  # of a program of XLA's
_CALLS = re.compile(
    r"\w*PartitionedCall|SymbolicGradient|(Stateless)?(While|If|Case)|XlaLaunch|_Xla\w+|__(inference|forward|backward)_\w+"
)
_COPY = re.compile(r"Mem(cpy|set)", re.IGNORECASE)
_LAUNCH = re.compile(r"Launch\w*Kernel")

Span = tuple[int, int]  # begin and end (ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A span on a line, in nanoseconds from the beginning of the step; for `detail` see the child's `timeline`."""

    line: int
    begin: int
    end: int
    name: str
    detail: int | None = None

    @property
    def span(self) -> Span:
        """Return when it was."""
        return self.begin, self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step: how long it lasts (ns), and its events; `lines` are (plane, line) by their index."""

    duration: int
    lines: Sequence[tuple[str, str]]
    events: Sequence[Event]


def steps_of(told: Mapping[str, Any], *, on_gpu: bool) -> list[list[StepParts]]:
    """Return where the time of each step goes, by block, of what a child tells of them."""
    [calls] = timelines(told, [told["calls"]])
    own_call_ns = call_ns(calls)
    return [
        [parts_of(step, call_ns=own_call_ns, on_gpu=on_gpu) for step in block]
        for block in timelines(told, told["blocks"])
    ]


def timelines(told: Mapping[str, Any], blocks: Sequence[Sequence[Any]]) -> list[list[Timeline]]:
    """Return the steps of blocks that a child tells of."""
    names = told["names"]
    lines = [(plane, line) for plane, line in told["lines"]]
    return [
        [
            Timeline(
                duration=duration,
                lines=lines,
                events=[
                    Event(line=line, begin=begin, end=begin + lasts, name=names[name], detail=detail)
                    for line, begin, lasts, name, detail in rows
                ],
            )
            for duration, rows in block
        ]
        for block in blocks
    ]


def call_ns(calls: Sequence[Timeline]) -> int:
    """Return what the call of an operator takes that has nothing to do (ns), from eager calls of one.

    0 where the kernel itself is seen: nothing has to be taken off then.
    """
    operators = (each for call in calls for each in _kinds(call).operators)
    lasts = [each.end - each.begin for each in operators if _RUN.fullmatch(each.name) is not None]
    return round(median(lasts)) if lasts else 0


def parts_of(timeline: Timeline, *, call_ns: int = 0, on_gpu: bool = False) -> StepParts:
    """Return where the time of a step goes; `call_ns` is what the call of an eager operator takes by itself.

    `on_gpu` tells whether operators are kernels of a GPU. What the host does while one runs is hidden by it, and what
    the host calls an operator is part of the runtime then.
    """
    kinds = _kinds(timeline)
    eager = [_kernel_of(each, call_ns) for each in kinds.operators]
    operators = kinds.kernels if on_gpu else eager
    layers = [
        [*(each.span for each in operators), *kinds.pool_tasks],
        [each.span for each in kinds.copies],
        [each.span for each in [*kinds.runtime, *kinds.operators]],
        kinds.waiting,
        kinds.handed_over,
    ]
    step = (0, timeline.duration)
    busy, moved, ran, waited, handed = (union(clipped(spans, step)) for spans in itertools.accumulate(layers))
    launches = sorted(kinds.launches if on_gpu else operators, key=lambda each: each.begin)
    begins = [each.begin for each in launches]
    kernel_begins = {each.detail: each.begin for each in kinds.kernels if each.detail is not None}
    return StepParts(
        parts_s={
            Part.OPERATORS: busy * NANO,
            Part.COPIES: (moved - busy) * NANO,
            Part.EXECUTOR: (ran - moved + handed - waited) * NANO,
            Part.WAITING: (waited - ran) * NANO,
            Part.PYTHON: (timeline.duration - handed) * NANO,
        },
        operators_s=[(each.end - each.begin) * NANO for each in operators],
        gaps_s=[(b - a) * NANO for a, b in itertools.pairwise(begins)],
        latencies_s=[
            (kernel_begins[each.detail] - each.begin) * NANO for each in launches if each.detail in kernel_begins
        ],
    )


def _kernel_of(operator: Event, call_ns: int) -> Event:
    """Return an operator without its call, where that is part of what was seen."""
    if _RUN.fullmatch(operator.name) is None:
        return operator
    return replace(operator, begin=min(operator.begin + call_ns, operator.end))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kinds:
    """The events of a step by what they mean."""

    operators: list[Event]
    kernels: list[Event]
    copies: list[Event]
    launches: list[Event]
    runtime: list[Event]
    waiting: list[Span]
    handed_over: list[Span]
    pool_tasks: list[Span]
    """Of a compiled program: a kernel that is divided among threads has no event on most of them."""


def _kinds(timeline: Timeline) -> _Kinds:
    kinds = _Kinds(
        operators=[], kernels=[], copies=[], launches=[], runtime=[], waiting=[], handed_over=[], pool_tasks=[]
    )
    is_compiled = any(_COMPILED in each.name for each in timeline.events)
    nested = [(event, tuple(outer)) for event, outer in _nested(timeline.events)]
    candidates: dict[int, tuple[Event, Sequence[Event]]] = {}
    programs: list[Event] = []
    for event, outer in nested:
        plane, line = timeline.lines[event.line]
        name = event.name
        if plane != HOST:
            (kinds.copies if _COPY.match(name) else kinds.kernels).append(event)
        elif name == _HANDED_OVER:
            kinds.handed_over.append(event.span)
        elif _RUN.fullmatch(name):
            call = next((each for each in reversed(outer) if each.name == _HANDED_OVER), None)
            if call is not None and call.detail:
                kinds.waiting.append(event.span)
            else:
                candidates[id(event)] = event, outer
        elif name == POOL_TASK:
            if is_compiled and _POOL in line:
                kinds.pool_tasks.append(event.span)
        elif name == _AWAITED:
            kinds.waiting.append(event.span)
        elif name == _GRAPH:
            kinds.runtime.append(event)
        elif _COMPILED in name:
            programs.append(event)
        elif _LAUNCH.search(name):
            kinds.launches.append(event)
        elif (node := _NODE.fullmatch(name)) is not None:
            if not _CALLS.fullmatch(node[1]):
                candidates[id(event)] = event, outer
        elif is_compiled and _KERNEL.fullmatch(name) and (_POOL in line or _is_within(_COMPILED, outer)):
            candidates[id(event)] = event, outer
    enclosing = {id(each) for _, outer in candidates.values() for each in outer}
    kinds.operators.extend(event for key, (event, _) in candidates.items() if key not in enclosing)
    kinds.operators.extend(_opaque(programs, kinds.operators))
    return kinds


def _is_within(name: str, outer: Sequence[Event]) -> bool:
    """Return whether one of the enclosing events has such a name."""
    return any(name in each.name for each in outer)


def _opaque(programs: Sequence[Event], operators: Sequence[Event]) -> list[Event]:
    """Return the innermost programs of XLA's in which no kernel is seen: older versions tell of none."""
    return [
        program
        for program in programs
        if not any(
            program.begin <= each.begin and each.end <= program.end
            for each in (*operators, *programs)
            if each is not program
        )
    ]


def _nested(events: Iterable[Event]) -> Iterator[tuple[Event, Sequence[Event]]]:
    """Yield each event with those of its line that it lies within, the outermost first."""
    open_: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda each: (each.begin, -each.end)):
        outer = open_.setdefault(event.line, [])
        while outer and outer[-1].end <= event.begin:
            outer.pop()
        yield event, outer
        outer.append(event)


def clipped(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return the parts of spans within another one."""
    low, high = within
    return [(max(a, low), min(b, high)) for a, b in spans if b > low and a < high]
