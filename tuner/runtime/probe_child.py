"""Look at TensorFlow from inside the target interpreter and write what is there as JSON to OUT.

    probe_child.py OUT PARENT_PID

Runs as a script: standard library and TensorFlow only, Python 3.9. oneDNN describes itself on stdout
(ONEDNN_VERBOSE=1, set by the caller), at the first primitive; the caller reads that.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys


def openmp_libraries() -> list[str]:
    """Return the paths of the OpenMP libraries that are mapped into this process."""
    pattern = re.compile(r"/lib(iomp5|gomp|omp)[^/]*\.so[^/]*$")
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) > 5}
    return sorted(path for path in paths if pattern.search(path))


def main() -> None:
    """Import TensorFlow, run one convolution, describe the build."""
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: nothing outlives the tuner
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    try:
        import tensorflow as tf

        images, kernel = tf.ones((1, 16, 16, 8)), tf.ones((3, 3, 8, 8))
        tf.function(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"))(images, kernel)
        facts: dict[str, object] = {
            "tensorflow": tf.__version__,
            "xla": bool(tf.test.is_built_with_xla()),
            "cuda": tf.sysconfig.get_build_info().get("cuda_version"),
            "openmp_libraries": openmp_libraries(),
        }
    except BaseException as error:
        facts = {"error": "%s: %s" % (type(error).__name__, error)}
    facts["python"] = "%d.%d.%d" % sys.version_info[:3]
    with open(sys.argv[1], "w") as out:
        json.dump(facts, out)
    sys.stdout.flush()
    os._exit(0)


main()
