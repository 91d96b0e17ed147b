"""The child: loads one workload, times slices of steps on request, and tells what happened.

Runs as a script in the target interpreter: standard library and TensorFlow only, Python 3.9.

    worker.py COMMAND_FD REPORT_FD SPEC

SPEC is a JSON object. Commands come and reports go as one JSON object a line, on pipes of their own; stdout
and stderr belong to TensorFlow and are kept by the parent as evidence.

    {"do": "export", ...}    writes the workload as a SavedModel, reports "exported"
    {"do": "time", ...}      loads it, warms up, reports "ready"; then obeys, until the command pipe ends:
        {"slice_s": s}       runs whole steps for at least s seconds, reports "slice"
    any failure              reports "failure" with its kind: failed, oom, invalid or unapplied
"""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import sys
import time
import traceback
from typing import Any, Callable, Iterable

MAX_STEP_TIMES = 400  # of one slice; a slice of more steps reports every k-th, so that a report stays small
WARM_UP_S = 0.5  # after the first step, which traces and compiles
CLOCK = time.perf_counter

Report = dict[str, Any]


class UnappliedError(Exception):
    """The setting does not hold in this process."""


class InvalidOutputError(Exception):
    """The model computed something that is not a number."""


def load_module(path: str) -> Any:
    """Execute a workload file; its folder is importable, so that it may stand beside other modules."""
    sys.path.insert(0, os.path.dirname(path))
    # Under its own name, so that what it pickles can be read by the processes that it starts.
    name = os.path.splitext(os.path.basename(path))[0]
    name = "tftune_workload" if name in sys.modules else name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def arguments_of(workload: Any, batch_size: int) -> tuple[Any, ...]:
    """Return the arrays of one call; a single array may come without its tuple."""
    given = workload.inputs(batch_size)
    arrays = (given,) if hasattr(given, "dtype") else given
    if not isinstance(arrays, (tuple, list)) or not all(hasattr(array, "dtype") for array in arrays):
        raise TypeError("inputs() returned %s, expected a tuple of NumPy arrays" % type(given).__name__)
    return tuple(arrays)


def export(spec: Report) -> Report:
    """Write the model as a SavedModel with one signature, its batch size left open."""
    import tensorflow as tf

    workload = load_module(spec["workload"])
    model = workload.build()
    arguments = arguments_of(workload, 2)

    def call(*tensors: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 else list(tensors)
        outputs = model(given, training=False) if isinstance(model, tf.keras.Model) else model(*tensors)
        return {"output_%d" % i: tensor for i, tensor in enumerate(tf.nest.flatten(outputs))}

    signature = [
        tf.TensorSpec((None,) + array.shape[1:], array.dtype, name="input_%d" % i) for i, array in enumerate(arguments)
    ]
    module = tf.Module()
    module.model = model
    function = tf.function(call, input_signature=signature)
    # A model that is a plain function shows its variables to nobody else.
    module.used = list(function.get_concrete_function().graph.variables)
    tf.saved_model.save(module, spec["folder"], signatures={spec["mode"]: function})
    return {"report": "exported"}


def prepare(spec: Report) -> tuple[Callable[[], Any], Report]:
    """Return (step, facts): `step()` runs the exported model once on inputs that are already there."""
    started = CLOCK()
    import tensorflow as tf

    imported = CLOCK()
    # First the workload's own code: what it sets of TensorFlow has to be in force before anything runs.
    arrays = arguments_of(load_module(spec["workload"]), spec["batch_size"])
    module = tf.saved_model.load(spec["folder"])
    function = module.signatures[spec["mode"]]
    tensors = {"input_%d" % i: tf.constant(array) for i, array in enumerate(arrays)}
    loaded = CLOCK()

    def step(_alive: Any = module) -> Any:
        return function(**tensors)

    check_finite(step())
    first = CLOCK()
    check_applied(tf.config.threading)
    warm_up = time_slice(step, WARM_UP_S)
    check_finite(warm_up.pop("outputs"))
    facts = {
        "import_s": imported - started,
        "load_s": loaded - imported,
        "first_step_s": first - loaded,
        "warm_up": warm_up,
        "effective": effective(),
    }
    return step, facts


def time_slice(step: Callable[[], Any], duration_s: float) -> Report:
    """Run whole steps until `duration_s` has passed; the clock is read once a step and nothing else is done."""
    ends = []
    start = CLOCK()
    stop = start + duration_s
    now = start
    while now < stop:
        outputs = step()
        now = CLOCK()
        ends.append(now)
    times = [after - before for before, after in zip([start] + ends, ends)]
    stride = -(-len(times) // MAX_STEP_TIMES)
    return {
        "start_s": start,
        "elapsed_s": now - start,
        "n_steps": len(times),
        "step_s": [round(t, 7) for t in times[::stride]],
        "outputs": outputs,
    }


def check_finite(outputs: Any) -> None:
    """Raise InvalidOutputError if a floating-point output holds a NaN or an infinity."""
    import numpy as np

    for name, tensor in outputs.items():
        if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            continue
        # NumPy knows no bfloat16; every narrow type fits into these.
        array = tensor.numpy().astype("complex128" if tensor.dtype.is_complex else "float64")
        if not np.isfinite(array).all():
            raise InvalidOutputError("%s holds %d values that are not finite" % (name, (~np.isfinite(array)).sum()))


def check_applied(threading: Any) -> None:
    """Raise UnappliedError if the workload chose thread counts itself: TensorFlow then ignores the variables."""
    for knob, chosen in (
        ("INTEROP", threading.get_inter_op_parallelism_threads()),
        ("INTRAOP", threading.get_intra_op_parallelism_threads()),
    ):
        variable = "TF_NUM_%s_THREADS" % knob
        if chosen and str(chosen) != os.environ.get(variable):
            raise UnappliedError("the workload itself sets %d threads, so that %s has no effect" % (chosen, variable))


def effective() -> Report:
    """Return what this process really looks like: its threads by name, and the CPUs they may run on."""
    threads: collections.Counter[str] = collections.Counter()
    masks: collections.Counter[str] = collections.Counter()
    for task in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/status" % task) as status:
                fields = dict(line.split(":", 1) for line in status if ":" in line)
        except OSError:  # a thread that ended in between
            continue
        threads[fields["Name"].strip()] += 1
        masks[fields["Cpus_allowed_list"].strip()] += 1
    return {"threads": dict(threads), "masks": dict(masks)}


def failure(error: BaseException, workload: str) -> Report:
    """Return the report of an exception, with the line of the workload that it came from.

    Its traceback goes to stderr, which is kept.
    """
    traceback.print_exc()
    kinds = {"MemoryError": "oom", "ResourceExhaustedError": "oom"}
    kinds.update({"InvalidOutputError": "invalid", "UnappliedError": "unapplied"})
    name = type(error).__name__
    message = "%s: %s" % (name, " ".join(str(error).split())[:500])
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == workload]
    if frames:
        message += " (line %d of %s)" % (frames[-1].lineno or 0, os.path.basename(workload))
    return {"report": "failure", "kind": kinds.get(name, "failed"), "message": message}


def serve(spec: Report, commands: Iterable[str], tell: Callable[[Report], None]) -> None:
    """Load, then obey until the parent closes the command pipe."""
    step, facts = prepare(spec)
    tell(dict(facts, report="ready"))
    for line in commands:
        timed = time_slice(step, json.loads(line)["slice_s"])
        check_finite(timed.pop("outputs"))
        tell(dict(timed, report="slice"))


def main() -> None:
    """Run what SPEC asks for."""
    sys.path.pop(0)  # this script's folder belongs to the tuner; nothing may be imported from it
    commands = os.fdopen(int(sys.argv[1]), "r")
    reports = os.fdopen(int(sys.argv[2]), "w", buffering=1)
    spec = json.loads(sys.argv[3])

    def tell(report: Report) -> None:
        reports.write(json.dumps(report) + "\n")

    try:
        if spec["do"] == "export":
            tell(export(spec))
        else:
            serve(spec, commands, tell)
    except BaseException as error:
        tell(failure(error, spec["workload"]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow's own teardown takes time and tells nothing


if __name__ == "__main__":
    main()
