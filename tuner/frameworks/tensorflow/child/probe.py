"""Look at TensorFlow from inside the target interpreter; see `tuner.child.probe`.

The plan of `describe` are experiments: `low`, variables and their values, and `changes`, what is set differently in
each experiment, or null where nothing is set.

oneDNN describes itself on stdout at its first primitive (ONEDNN_VERBOSE=1, set by the caller). So each experiment
runs in a fork with a stdout of its own: the variables are set, a context is created, a convolution runs, and
what came of it is told. Nothing is timed here, so that asking the OpenMP library itself does no harm.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
from typing import Any, Callable, Dict, List, Optional

from ....child import effective, fork, probe
from . import facts, importing

TIMEOUT_S = 40.0


def convolve(inside: Callable[[], Any]) -> None:
    """Run a convolution, and call `inside` on a thread that operators run on."""
    import tensorflow as tf

    images, kernel = tf.ones((1, 16, 16, 8)), tf.ones((3, 3, 8, 8))

    def call(x: Any) -> Any:
        inside()
        return x

    # Autograph, which has nothing to do here, would leave a file behind.
    step = tf.function(
        lambda x, k: tf.numpy_function(call, [tf.nn.conv2d(x, k, 1, "SAME")], tf.float32), autograph=False
    )
    for _ in range(2):
        step(images, kernel)


def ask_openmp() -> Optional[Dict[str, Any]]:
    """Return what the OpenMP library reports on this thread, None where there is none of Intel's or LLVM's."""
    for path in effective.openmp_libraries():
        library = ctypes.CDLL(path)
        if hasattr(library, "kmp_get_blocktime"):
            return {
                "max_threads": library.omp_get_max_threads(),
                "blocktime_ms": library.kmp_get_blocktime(),
                "cpus": sorted(os.sched_getaffinity(0)),
            }
    return None


def observe(low: Dict[str, str], changes: Optional[Dict[str, str]]) -> Dict[str, Any]:
    """Set the variables, create the context, run, and tell; in a fork."""
    variables = {} if changes is None else dict(low, **changes)
    os.environ.update(variables)
    with tempfile.TemporaryFile() as out:
        os.dup2(out.fileno(), 1)
        before = effective.threads()
        import tensorflow as tf

        tf.constant(0.0)
        after = effective.threads()
        reports: List[Any] = []
        convolve(lambda: reports.append(ask_openmp()))
        # Threads name themselves once they run.
        named = effective.names({task: thread for task, thread in effective.threads().items() if task in after}, before)
        out.seek(0)
        lines = out.read().decode(errors="replace").splitlines()
    return {
        "changes": changes,
        "created": len(after.keys() - before.keys()),
        "names": named,
        "onednn": "\n".join(line for line in lines if ",info," in line),
        "openmp": reports[-1] if reports else None,
    }


def describe(experiments: Dict[str, Any]) -> Dict[str, Any]:
    """Return what TensorFlow, its libraries and the experiments tell."""
    tf = importing.tensorflow()
    refused = facts.fork_refusal()
    observations: List[Any] = []
    for changes in experiments["changes"] if refused is None else []:
        observation = fork.in_a_fork(functools.partial(observe, experiments["low"], changes), TIMEOUT_S)
        if observation is None:
            refused = "a process that is forked after importing this TensorFlow hangs"
            break
        observations.append(observation)
    convolve(lambda: None)
    return {
        "tensorflow": tf.__version__,
        # It is not imported: a model may need none, and the user's settings of Keras may keep it from being imported.
        "keras": "".join(probe.installed(["tf_keras" if importing.uses_legacy() else "keras"]).values()),
        "xla": bool(tf.test.is_built_with_xla()),
        "cuda": tf.sysconfig.get_build_info().get("cuda_version"),
        "openmp_libraries": effective.openmp_libraries(),
        "enabled": facts.onednn_is_on(),
        "observations": observations,
        "refused": refused,
    }


def devices(_: Dict[str, Any]) -> Dict[str, Any]:
    """Return the names of the GPUs that TensorFlow sees, what it was built for, and what it logged meanwhile.

    There it names the libraries that it could not load.
    """
    details, failed = [], ""
    with probe.logged() as log:
        tf = importing.tensorflow()
        try:
            gpus = tf.config.list_physical_devices("GPU")
            details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        except tf.errors.InternalError as error:
            failed = str(error)
    build = tf.sysconfig.get_build_info()
    return {
        "gpus": [each.get("device_name", "GPU") for each in details],
        "is_cuda_build": bool(build.get("is_cuda_build")),
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "failed": failed,
        "log": log[0],
    }
