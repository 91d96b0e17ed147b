"""Engines: built of an ONNX file for one shape of its inputs, kept in the cache, and run on the GPU.

A build times kernels, so that it takes seconds to minutes, and another build may choose others. What was built once is
kept, and all processes of a setting run the same engine, as a server does that is handed a plan.

Sources: TensorRT's Python API (`Builder`, `OnnxParser`, `IExecutionContext`), CUDA Driver API (streams, copies).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Tuple

from ....child.inputs import WorkloadError
from ....devices.child import nvidia

Shapes = Dict[str, Tuple[int, ...]]
Report = Dict[str, Any]


def new_log() -> Any:
    """Return a logger of TensorRT that keeps its errors and warnings as `lines`."""
    import tensorrt

    class Log(tensorrt.ILogger):  # type: ignore[misc]  # it has no types
        def __init__(self) -> None:
            tensorrt.ILogger.__init__(self)
            self.lines: List[str] = []

        def log(self, severity: Any, text: str) -> None:
            """Keep what tells of trouble."""
            if severity in (tensorrt.ILogger.INTERNAL_ERROR, tensorrt.ILogger.ERROR):
                self.lines.append(text.strip())

    return Log()


def plan_of(path: str, shapes: Shapes, options: Mapping[str, Any]) -> bytes:
    """Return the engine of an ONNX file for these shapes as bytes: as it was built before, or built now.

    Raises WorkloadError for a file that TensorRT cannot read, and MemoryError where the GPU's memory ran out.
    """
    # Beside the exports: what is in an export's own folder is part of it.
    folder = os.path.join(os.path.dirname(os.path.dirname(path)), "engines")
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, "%s.plan" % digest_of(path, shapes, options))
    with contextlib.suppress(FileNotFoundError):
        return contents(kept)
    with open("%s.lock" % kept, "w") as lock:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            return contents(kept)  # another process has built it meanwhile
        plan = built(path, shapes, options)
        partial = "%s.%d" % (kept, os.getpid())
        with open(partial, "wb") as file:
            file.write(plan)
        os.replace(partial, kept)  # whole, even if this process is killed
        return plan


def contents(path: str) -> bytes:
    """Return what a file holds."""
    with open(path, "rb") as file:
        return file.read()


def digest_of(path: str, shapes: Shapes, options: Mapping[str, Any]) -> str:
    """Return a name that changes with whatever an engine depends on: it serves one kind of GPU and one version."""
    import tensorrt

    name, driver_version = ctypes.create_string_buffer(256), ctypes.c_int()
    nvidia.driver().call("cuDeviceGetName", name, 256, nvidia.driver().device)
    nvidia.driver().call("cuDriverGetVersion", ctypes.byref(driver_version))
    status = os.stat(path)
    key = [os.path.realpath(path), status.st_size, status.st_mtime_ns, sorted(shapes.items()), sorted(options.items())]
    key += [nvidia.tf32_is_allowed(), tensorrt.__version__, name.value.decode(), driver_version.value]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def built(path: str, shapes: Shapes, options: Mapping[str, Any]) -> bytes:
    """Return an engine that is built now."""
    import tensorrt

    log = new_log()
    builder = tensorrt.Builder(log)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, log)
    if not parser.parse_from_file(os.path.realpath(path)):
        raise WorkloadError(
            "TensorRT cannot read it: %s" % refused(parser), "use another model, or a framework that runs it"
        )
    config = builder.create_builder_config()
    for name, value in options.items():
        setattr(config, name, int(value))
    profile = builder.create_optimization_profile()
    # A converter leaves out what no output needs.
    taken = [network.get_input(number).name for number in range(network.num_inputs)]
    for name, shape in ((name, shapes[name]) for name in taken):
        profile.set_shape(name, shape, shape, shape)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise failure("TensorRT cannot build an engine", log.lines)
    return bytes(plan)


def refused(parser: Any) -> str:
    """Return what a parser says of the first node that it refused, with the name of its operator."""
    errors = [parser.get_error(number) for number in range(parser.num_errors)]
    if not errors:
        return "it gives no reason"
    operator = errors[0].node_operator()
    return "%s%s" % ("its operator %s: " % operator if operator else "", errors[0].desc().strip())


def failure(what: str, lines: List[str]) -> Exception:
    """Return the exception for a failure with what was logged of it."""
    text = "%s: %s" % (what, lines[-1] if lines else "it gives no reason")
    return MemoryError(text) if any("out of memory" in line.lower() for line in lines) else RuntimeError(text)


class Engine:
    """An engine in this process."""

    def __init__(self, plan: bytes) -> None:
        """Load it; raises MemoryError or RuntimeError."""
        import tensorrt

        self.log = new_log()
        self.runtime = tensorrt.Runtime(self.log)
        self.engine = self.runtime.deserialize_cuda_engine(plan)
        if self.engine is None:
            raise failure("TensorRT cannot load the engine", self.log.lines)
        names = [self.engine.get_tensor_name(number) for number in range(self.engine.num_io_tensors)]
        is_input = {name: self.engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT for name in names}
        self.inputs = [name for name in names if is_input[name]]
        self.outputs = [name for name in names if not is_input[name]]
        self.dtypes = {name: tensorrt.nptype(self.engine.get_tensor_dtype(name)) for name in names}

    def caller(self, feed: Report, *, copies_inputs: bool) -> "Callable[[], Report]":
        """Return a call on these arrays, in a context and a stream of its own, that ends with its outputs in memory.

        `copies_inputs` says whether each call copies its inputs to the GPU; else they lie there.
        """
        import numpy as np

        entered = threading.local()
        enter(entered)
        driver = nvidia.driver()
        context = self.engine.create_execution_context()
        if context is None:
            raise failure("TensorRT cannot make a context", self.log.lines)
        stream = ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(stream), 1)  # CU_STREAM_NON_BLOCKING
        sources = {name: np.ascontiguousarray(feed[name], self.dtypes[name]) for name in self.inputs}
        for name, array in sources.items():
            context.set_input_shape(name, array.shape)
        shapes = {name: tuple(context.get_tensor_shape(name)) for name in self.outputs}
        sizes = {name: int(np.prod(shapes[name])) * np.dtype(self.dtypes[name]).itemsize for name in self.outputs}
        places = {name: allocated(array.nbytes) for name, array in sources.items()}
        places.update({name: allocated(size) for name, size in sizes.items()})
        bytes_of = {name: ctypes.c_size_t(array.nbytes) for name, array in sources.items()}
        bytes_of.update({name: ctypes.c_size_t(size) for name, size in sizes.items()})
        for name, place in places.items():
            context.set_tensor_address(name, place.value)

        def copy_inputs() -> None:
            for name, array in sources.items():
                source = ctypes.c_void_p(array.ctypes.data)
                driver.call("cuMemcpyHtoDAsync_v2", places[name], source, bytes_of[name], stream)

        def call() -> Report:
            enter(entered)
            if copies_inputs:
                copy_inputs()
            if not context.execute_async_v3(stream.value):
                raise failure("TensorRT did not run", self.log.lines)
            outputs = {name: np.empty(shapes[name], self.dtypes[name]) for name in self.outputs}
            for name, array in outputs.items():
                target = ctypes.c_void_p(array.ctypes.data)
                driver.call("cuMemcpyDtoHAsync_v2", target, places[name], bytes_of[name], stream)
            driver.call("cuStreamSynchronize", stream)
            return outputs

        if not copies_inputs:
            copy_inputs()
            driver.call("cuStreamSynchronize", stream)
        weakref.finalize(call, released, list(places.values()), stream)
        return call


def enter(entered: threading.local) -> None:
    """Make the GPU's primary context this thread's own, once."""
    if not getattr(entered, "is_done", False):
        nvidia.driver().enter()
        entered.is_done = True


def allocated(n_bytes: int) -> ctypes.c_uint64:
    """Return a place of so many bytes in the GPU's memory; raises MemoryError."""
    place = ctypes.c_uint64()
    nvidia.driver().call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(1, n_bytes)))
    return place


def released(places: "List[ctypes.c_uint64]", stream: ctypes.c_void_p) -> None:
    """Give back what a call had of the GPU: another batch size has its own."""
    driver = nvidia.driver()
    driver.enter()
    try:
        for place in places:
            driver.call("cuMemFree_v2", place)
        driver.call("cuStreamDestroy_v2", stream)
    except nvidia.DriverError:
        return  # the driver is gone, and the memory with it
    finally:
        driver.leave()
