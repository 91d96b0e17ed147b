"""Sessions: made with options as text or number by name, and asked what has become of them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

from ....child import effective
from ....child.inputs import WorkloadError, load_libraries

CONFIG = "session."
MODE = "execution_mode"
MODES = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}
REPORTED = ("intra_op_num_threads", "inter_op_num_threads")
AFFINITY, CORES = "intra_op_affinity", "cores"
AFFINITIES = "session.intra_op_thread_affinities"
ENTRIES = ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning", AFFINITIES)
CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
CUDA_OPTIONS = ("cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "prefer_nhwc")
"""Options that its provider for GPUs takes."""
IDLE_S = 0.2
STARTED_S = 10.0  # within which every thread has begun and bound itself, however busy the machine is
OUT_OF_MEMORY = ("Failed to allocate memory", "bad allocation", "bad_alloc", "out of memory")
Options = Mapping[str, Union[int, str]]


def make_session(path: str, options: Options, *, on_gpu: bool = False, libraries: Iterable[str] = ()) -> Any:
    """Return a session of a model, made with these options and the defaults of all others, on the CPU or the first GPU.

    `libraries` of operators are registered with it.

    One of them is ours: `intra_op_affinity`, "cores" for a physical core for each thread, or any other word for none.
    Raises WorkloadError where ONNX Runtime would compute on the CPU instead of the GPU, which it only logs.
    """
    import onnxruntime

    session_options = onnxruntime.SessionOptions()
    load_libraries(list(libraries), session_options.register_custom_ops_library)
    cuda_options = {}
    for name, value in options.items():
        if name == AFFINITY:
            if value == CORES:
                groups = affinities(int(options["intra_op_num_threads"]))
                session_options.add_session_config_entry(AFFINITIES, groups)
        elif name in CUDA_OPTIONS:
            cuda_options[name] = str(value).upper()
        elif name.startswith(CONFIG):
            session_options.add_session_config_entry(name, str(value))
        elif name == MODE:
            session_options.execution_mode = getattr(onnxruntime.ExecutionMode, MODES[str(value)])
        else:
            setattr(session_options, name, int(value))
    # What its provider for GPUs has no code for runs on the CPU.
    providers = [(CUDA_PROVIDER, cuda_options), CPU_PROVIDER] if on_gpu else [CPU_PROVIDER]
    session = onnxruntime.InferenceSession(path, session_options, providers=providers)
    if on_gpu and CUDA_PROVIDER not in session.get_providers():
        raise WorkloadError(
            "ONNX Runtime fell back to the CPU: it could not use the GPU", "see: tftune inspect --device gpu"
        )
    return session


def affinities(n_threads: int) -> str:
    """Return the CPUs of each thread of a pool but the caller's, as a session takes them: a physical core each.

    ONNX Runtime counts CPUs from 1. The caller is left where it is, and the first core with it, as by default.
    """
    cores: Dict[str, List[str]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = str(cpu)  # a container may show other CPUs there than those that it may use
        path = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            siblings = file.read()
        cores.setdefault(siblings, []).append(str(cpu + 1))
    groups = [",".join(cpus) for cpus in cores.values()]
    return ";".join(groups[thread % len(groups)] for thread in range(1, n_threads))


def reported_options(session: Any) -> Dict[str, str]:
    """Return the options that a session has, as text; of entries only those that were set."""
    options = session.get_session_options()
    named = {name: str(getattr(options, name)) for name in REPORTED}
    named[MODE] = next((word for word, name in MODES.items() if name == options.execution_mode.name), "unknown")
    for name in ENTRIES:
        with contextlib.suppress(RuntimeError):  # it was not set
            named[name] = options.get_session_config_entry(name)
    cuda_options = session.get_provider_options().get(CUDA_PROVIDER, {})
    named.update({name: cuda_options[name] for name in CUDA_OPTIONS if name in cuda_options})
    return named


def translated(error: Exception) -> BaseException:
    """Return an error as Python's own where it tells of memory that ran out: it has no code, and words only."""
    text = str(error)
    return MemoryError(text) if any(words in text for words in OUT_OF_MEMORY) else error


def has_slept(task: str) -> bool:
    """Return whether a thread has waited for something, and so has begun; True for one of which nothing is told."""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/task/%s/status" % task, encoding="utf-8", errors="replace") as status,
    ):
        for line in status:
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1]) > 0
    return True


def observe(options: Optional[Options]) -> Dict[str, Any]:
    """Return what a session of a small model does: the threads that it starts, and the CPU time of idle ones.

    Of the threads, `bound` are those that may not use all CPUs of the process.
    """
    from onnxruntime import datasets

    before = effective.threads()
    session = make_session(datasets.get_example("sigmoid.onnx"), options or {})
    before_s = time.process_time()
    time.sleep(IDLE_S)
    idle_s = time.process_time() - before_s
    end = time.monotonic() + STARTED_S
    while not all(map(has_slept, effective.threads().keys() - before.keys())) and time.monotonic() < end:
        time.sleep(0.01)
    now = effective.threads()
    created = now.keys() - before.keys()
    own_mask = before[str(os.getpid())][1]
    return {
        "created": len(created),
        "bound": sum(now[task][1] != own_mask for task in created),
        "idle_cpu_s": idle_s,
        "options": reported_options(session),
    }
