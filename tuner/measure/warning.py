"""All warnings about the reliability of a figure, each with advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.child.outputs import text_of
from tuner.child.shapes import outweighs
from tuner.machine.conditions import Conditions, DeviceConditions
from tuner.measure import interruption
from tuner.trial.outcome import Slice
from tuner.workload.feed import InputFacts

_STEAL = 0.02
_BUSY, _OVERSUBSCRIBED = 0.05, 0.5  # of the CPUs in the mask, kept busy by others
# The kernel's scheduler shares CPUs between sessions, so that others never get more than their part of them; that
# something waits nearly all the time tells how much more they wanted.
_CROWDED, _WAITED = 0.25, 0.75
_THROTTLED = 0.01
_RARE = 0.05  # of the looks at a device: what was seen less often is no warning
_MOST_INPUTS = 6  # that a line names
_WANTED = frozenset({"fixed clocks"})  # reasons for a lower clock that somebody has chosen


class Code(StrEnum):
    """The kind of a warning; the values are part of the JSON contract."""

    BUSY = "busy"
    OVERSUBSCRIBED = "oversubscribed"
    STEAL = "steal"
    HEAT = "heat"
    QUOTA = "quota"
    ASLEEP = "asleep"
    STALLED = "stalled"
    PINNED = "pinned"
    UNLIKE_CORES = "unlike cores"
    OTHER_BUILD = "other build"
    NOT_STEADY = "not steady"
    FORKS = "forks differ"
    FEW_SAMPLES = "few samples"
    FEW_ROUNDS = "few rounds"
    ALONE = "measured alone"
    OVERLOAD = "overload"
    NOISY = "noisy"
    ASSUMED_NOISE = "assumed noise"
    NO_SEARCH = "no search"
    UNPROVEN_LIMIT = "unproven limit"
    FEW_DIGITS = "few digits"
    LEFT_OUT = "left out"
    FAILED_RUNS = "failed runs"
    FAILED_SETTINGS = "failed settings"
    WRONG_WAY = "wrong way"
    OWN_SETTING = "own setting"
    UNTOLD = "not told"
    WHOSE_KNOBS = "whose knobs"
    PER_STEP = "per step"
    COUNTS = "several numbers"
    GROWING = "more each run"
    FAR_APART = "far apart"
    TWO_FIGURES = "two figures"
    OTHER_WORDS = "other words"
    UNSEEN = "unseen"
    FLAT_OUTPUTS = "flat outputs"
    NOT_FINITE = "not finite"
    MADE_UP = "made-up inputs"
    EMPTY_OUTPUTS = "empty outputs"
    BATCH_AXIS = "batch dimension"
    FIXED_INPUT = "fixed input"
    BATCH_SIZES = "batch sizes"
    GPU_THROTTLED = "GPU throttled"
    GPU_SHARED = "GPU shared"
    GPU_LOST = "GPU lost"

    def seen(self, observation: str) -> MeasurementWarning:
        """Return a warning of this kind; `observation` says what was seen."""
        return MeasurementWarning(code=self, observation=observation)


ADVICE = {
    Code.BUSY: "stop the other programs, or give a longer --time-budget",
    Code.OVERSUBSCRIBED: "stop the other programs: threads that wait for a CPU make timings show the scheduler",
    Code.STEAL: "other virtual machines used these CPUs: measure at a quieter time, or on another host",
    Code.HEAT: "the CPU throttled itself: improve the cooling, or let it cool down before measuring",
    Code.QUOTA: "the CPU quota of the container slowed the threads down: use fewer threads, or raise the quota",
    Code.ASLEEP: "the affected part was measured again; prevent the machine from suspending",
    Code.PINNED: "the figures hold for that only: remove it from the workload or from what it imports "
    "(sched_setaffinity, taskset, OMP_PROC_BIND)",
    Code.UNLIKE_CORES: "requests that go to the slower cores take longer: use fewer processes, or only cores of one "
    "kind (taskset -c LIST tftune …)",
    Code.OTHER_BUILD: "operators may take other times: trust the order of settings that are far apart, or profile the "
    "workload where it will run",
    Code.STALLED: "it was measured again; check for other programs, or for I/O in the workload",
    Code.NOT_STEADY: "the speed still changed after the warm-up: give a longer --time-budget",
    Code.FORKS: "the finals continued with fresh interpreters, so fewer rounds count: give a longer --time-budget",
    Code.FEW_SAMPLES: "give a longer --time-budget",
    Code.FEW_ROUNDS: "give a longer --time-budget",
    Code.ALONE: "there was no room for two processes, and each block took two starts: free some memory, or give a "
    "longer --time-budget",
    Code.OVERLOAD: "its responses are only those of the first seconds, later ones take longer: give a lower --rate; "
    "tftune load shows the highest",
    Code.NOISY: "smaller differences will mostly stay undecided: use a quieter machine, or give a longer --time-budget",
    Code.ASSUMED_NOISE: "the noise floor is mostly a typical value, not measured here: give a longer --time-budget",
    Code.NO_SEARCH: "the finals needed all of the remaining time: give a longer --time-budget",
    Code.UNPROVEN_LIMIT: "give a longer --time-budget to measure more steps",
    Code.FEW_DIGITS: "let the command print more digits: no longer --time-budget can replace them",
    Code.LEFT_OUT: "let the pattern match the lines of the measurement alone",
    Code.FAILED_RUNS: "each was repeated, and does not count: find out why the command fails now and then",
    Code.FAILED_SETTINGS: "nothing is known of their speed: `tftune show --details` gives the reason of each",
    Code.WRONG_WAY: "add --minimize for a time or an energy, and leave it out for a rate",
    Code.OWN_SETTING: "remove that, or put the knob in braces among the words of the command",
    Code.UNTOLD: "`tftune inspect` lists the knobs: put them in braces among the words of the command",
    Code.WHOSE_KNOBS: "if the command runs another interpreter, name it by --python",
    Code.PER_STEP: "larger batches then look slower than they are: let the command print items per second",
    Code.COUNTS: "if they are of single threads or processes, let the command print their sum",
    Code.GROWING: "let each run write a file of its own: most of these numbers are of other runs",
    Code.FAR_APART: "see whether the command prints another unit under some settings, or whether the pattern matches "
    "other figures, too",
    Code.TWO_FIGURES: "let the pattern match one of them, e.g. with the words before its number",
    Code.OTHER_WORDS: "their unit is not known: see that it is the same, or let the command print one, such as ms",
    Code.UNSEEN: "containers, sudo, ssh and launch scripts drop variables or set their own: let the program print "
    "them, or put the knobs among the words of the command",
    Code.FLAT_OUTPUTS: "agreement of the frameworks shows little: compare them with trained weights",
    Code.NOT_FINITE: "if the model does not mean them, its weights are wrong, or the inputs do not fit it",
    Code.MADE_UP: "the figures are of that work: give what the model gets in production, --input NAME=VALUE or "
    "--input NAME=FILE",
    Code.EMPTY_OUTPUTS: "nothing is computed for it: give inputs that lead to a result, with --input, --input-range or "
    "--input-shape",
    Code.BATCH_AXIS: "if another dimension of the inputs is the batch, write batch in its place: --input-shape "
    "NAME=100,batch,80; if the model has no batch, give the whole shape of every input: --input-shape NAME=100,3; a "
    "Python file computes from all items of inputs(), or batch sizes do not compare",
    Code.FIXED_INPUT: "batch sizes do not compare: give one --batch-size, or save the model with an open batch for all "
    "inputs",
    Code.BATCH_SIZES: "leave the others out of --batch-size",
    Code.GPU_THROTTLED: "heat: improve the cooling; power cap: usual on GPUs of low power, and steadier at a clock "
    "that it can hold",
    Code.GPU_SHARED: "stop the other programs on the GPU, or choose another --device",
    Code.GPU_LOST: "see dmesg for the driver's messages, and measure again",
}


DISTURBING = frozenset(
    {
        Code.BUSY,
        Code.OVERSUBSCRIBED,
        Code.STEAL,
        Code.HEAT,
        Code.QUOTA,
        Code.ASLEEP,
        Code.STALLED,
        Code.NOT_STEADY,
        Code.GPU_THROTTLED,
        Code.GPU_SHARED,
        Code.GPU_LOST,
    }
)
"""What disturbs measurements, and so explains why nothing could be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementWarning:  # the field's own word; the builtin is not used here
    """One thing that makes a figure less believable; `observation` says what was seen."""

    code: Code
    observation: str


def condition_warnings(conditions: Conditions) -> list[MeasurementWarning]:
    """Return what the machine did that makes figures less believable."""
    warnings = seen_warnings(conditions.pinned, conditions.unlike_cores)
    if conditions.not_finite:
        warnings.append(Code.NOT_FINITE.seen(f"{conditions.not_finite}, under the default"))

    def add(code: Code, text: str) -> None:
        warnings.append(code.seen(text))

    share = conditions.foreign_cpus / conditions.n_cpus
    load_text = f"other processes kept {conditions.foreign_cpus:.1f} of {conditions.n_cpus} CPUs busy"
    crowded = share >= _CROWDED and (conditions.pressure_share or 0.0) >= _WAITED
    if share >= _OVERSUBSCRIBED or crowded:
        waited = (
            ""
            if conditions.pressure_share is None
            else f"; threads waited for a CPU {100 * conditions.pressure_share:.0f} % of the time"
        )
        add(Code.OVERSUBSCRIBED, load_text + waited)
    elif share >= _BUSY:
        add(Code.BUSY, load_text)
    if conditions.steal_share >= _STEAL:
        add(Code.STEAL, f"{100 * conditions.steal_share:.0f} % of the CPU time was taken by the hypervisor (steal)")
    if conditions.throttled_share >= _THROTTLED:
        add(Code.QUOTA, f"the CPU quota throttled the processes {100 * conditions.throttled_share:.0f} % of the time")
    if conditions.hot:
        add(Code.HEAT, f"{conditions.hot} thermal throttling event{'' if conditions.hot == 1 else 's'}")
    slept = interruption.suspended(conditions.asleep_s)
    if slept is not None:
        add(Code.ASLEEP, slept.text)
    return warnings + ([] if conditions.device is None else _device_warnings(conditions.device))


def seen_warnings(pinned: str, unlike_cores: str = "") -> list[MeasurementWarning]:
    """Return what processes were seen to be that no setting asked for; see `tuner.machine.conditions.Conditions`."""
    texts = {Code.PINNED: pinned, Code.UNLIKE_CORES: unlike_cores}
    return [code.seen(text) for code, text in texts.items() if text]


def _device_warnings(seen: DeviceConditions) -> list[MeasurementWarning]:
    """Return what a device of its own did that makes figures less believable."""
    slowed = [
        f"{reason} ({100 * share:.0f} % of the time)"
        for reason, share in seen.throttled.items()
        if share >= _RARE and reason not in _WANTED
    ]
    texts = {
        Code.GPU_THROTTLED: f"the GPU ran below its highest clock: {', '.join(slowed)}" if slowed else "",
        Code.GPU_SHARED: f"others computed on the GPU: {', '.join(seen.foreign)}" if seen.foreign else "",
        Code.GPU_LOST: f"the GPU could not be read any more: {seen.lost}" if seen.lost else "",
    }
    return [code.seen(text) for code, text in texts.items() if text]


def output_warnings(not_finite: Iterable[Mapping[str, Mapping[str, int]]]) -> list[MeasurementWarning]:
    """Return that outputs hold NaN or infinite values, with the counts of the first process that told of any."""
    for counts in not_finite:
        if counts:
            return [Code.NOT_FINITE.seen(f"{text_of(counts)}, under every setting")]
    return []


def run_warnings(slices: Iterable[Slice]) -> list[MeasurementWarning]:
    """Return how often runs of a command failed that were repeated, and why the last one did."""
    n_runs, failed = 0, list[str]()
    for each in slices:
        n_runs += each.n_steps + len(each.failed)
        failed += each.failed
    text = f"{len(failed)} of {n_runs} runs failed, the last one with: {failed[-1]}" if failed else ""
    return [Code.FAILED_RUNS.seen(text)] if failed else []


def input_warnings(
    inputs: Sequence[InputFacts], outputs: Mapping[str, Mapping[str, Sequence[int]]], batch_note: str = ""
) -> list[MeasurementWarning]:
    """Return what of the inputs that were made up, and of the outputs, shows that work may be missing.

    `outputs` are the shapes of outputs by name, by batch size; `batch_note` says which batch sizes were left out.
    """
    doubtful = [each for each in inputs if each.doubtful]
    named = [f"{each.name} {each.values}" for each in doubtful[:_MOST_INPUTS]]
    more = f" and {len(doubtful) - len(named)} more" if len(doubtful) > len(named) else ""
    empty = {name: shape for by_name in outputs.values() for name, shape in by_name.items() if 0 in shape}
    begins_with_batch = any(each.shape[:1] == (None,) for each in inputs) or (not inputs and len(outputs) > 1)
    ignores_batch = any(each.ignored_batch for each in inputs)
    texts = {
        Code.MADE_UP: f"what these inputs hold can change the work: {', '.join(named)}{more}" if doubtful else "",
        Code.EMPTY_OUTPUTS: ", ".join(f"output {name} has the size {_shape(shape)}" for name, shape in empty.items()),
        Code.BATCH_AXIS: _unscaled(outputs, ignores_batch) if begins_with_batch and not empty else "",
        Code.FIXED_INPUT: "" if len(outputs) == 1 else _of_one_size(inputs),
        Code.BATCH_SIZES: batch_note,
    }
    return [code.seen(text) for code, text in texts.items() if text]


def _of_one_size(inputs: Sequence[InputFacts]) -> str:
    """Return which large inputs do not grow with the batch, where others do; a model of an ensemble has its own."""
    models = dict.fromkeys(each.name.rpartition(": ")[0] for each in inputs)
    for own in ([each for each in inputs if each.name.rpartition(": ")[0] == model] for model in models):
        fixed = [each for each in own if outweighs(each.shape, [other.shape for other in own])]
        if fixed:
            named = ", ".join(f"{each.name} is {_shape(each.shape)}" for each in fixed[:_MOST_INPUTS])
            counted = " and ".join([each.name for each in own if None in each.shape][:_MOST_INPUTS])
            return f"{named} at every batch size, and items count {counted} alone"
    return ""


def _unscaled(outputs: Mapping[str, Mapping[str, Sequence[int]]], ignores_batch: bool) -> str:
    """Return that no output grows with the batch, if that is so: which dimension does is the model's affair.

    Of a single batch size, the graph shows it (`ignores_batch`), or the shapes do.
    """
    arrays = {size: {name: tuple(shape) for name, shape in each.items() if shape} for size, each in outputs.items()}
    batch_size, shapes = next(iter(arrays.items()), ("", {}))
    is_alone = len(arrays) == 1 and (ignores_batch or not any(int(batch_size) in shape for shape in shapes.values()))
    if not shapes or not (is_alone or (len(arrays) > 1 and all(each == shapes for each in arrays.values()))):
        return ""
    shown = ", ".join(f"{name} {_shape(shape)}" for name, shape in list(shapes.items())[:_MOST_INPUTS])
    if is_alone:
        return f"no output grows with the batch (measured at {batch_size}): {shown}"
    return f"the outputs have the same shapes at the batch sizes {' and '.join(list(arrays)[:2])}: {shown}"


def _shape(shape: Sequence[int | None]) -> str:
    return f"({', '.join(map(str, shape))})"


def merge(*groups: Iterable[MeasurementWarning]) -> list[MeasurementWarning]:
    """Return the warnings of several sources, each kind once: the last that was said of it."""
    return list({warning.code: warning for group in groups for warning in group}.values())
