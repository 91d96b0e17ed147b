"""A TensorRT without a GPU: the names of its API that tftune uses, over ONNX Runtime and the driver beside this folder.

The "GPU's" memory is the host's: an engine reads its inputs from the addresses that it was given, and writes its
outputs there. A plan is the ONNX file. What cannot be seen here is whether TensorRT itself behaves as its documentation
says.
"""

import ctypes
import enum
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

__version__ = "11.4.0"


class TensorIOMode(enum.Enum):
    INPUT = 1
    OUTPUT = 2


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def __init__(self):
        pass

    def log(self, severity, message):
        raise NotImplementedError


class Logger(ILogger):
    def log(self, severity, message):
        pass


def nptype(dtype):
    return dtype


class Builder:
    def __init__(self, logger):
        if os.environ.get("FAKE_TENSORRT") == "broken":
            logger.log(ILogger.ERROR, "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self.logger = logger

    def create_network(self, flags):
        return Network()

    def create_builder_config(self):
        return Config()

    def create_optimization_profile(self):
        return Profile()

    def build_serialized_network(self, network, config):
        with Path(os.environ["FAKE_GPU"] + ".builds").open("a") as file:
            file.write(f"{sorted(vars(config).items())!r}\n")
        if os.environ.get("FAKE_TENSORRT") == "full":
            self.logger.log(ILogger.ERROR, "Error Code 2: OutOfMemory (Requested size was 1 bytes): out of memory")
            return None
        assert config.profile.shapes.keys() == {network.get_input(i).name for i in range(network.num_inputs)}
        return network.model.SerializeToString()


class Named:
    def __init__(self, name):
        self.name = name


class Network:
    model = None

    @property
    def num_inputs(self):
        return len(self.model.graph.input)

    def get_input(self, index):
        return Named(self.model.graph.input[index].name)


class Config:
    builder_optimization_level = 3
    profile = None

    def add_optimization_profile(self, profile):
        self.profile = profile
        return 0

    def __setattr__(self, name, value):
        assert name in ("builder_optimization_level", "max_aux_streams", "profile"), name
        object.__setattr__(self, name, value)


class Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, low, best, high):
        assert low == best == high
        self.shapes[name] = low

    def __repr__(self):
        return repr(self.shapes)


class ParserError:
    def __init__(self, operator):
        self.operator = operator

    def node_operator(self):
        return self.operator

    def desc(self):
        return "In node 3 (importFallbackPluginImporter): UNSUPPORTED_NODE"


class OnnxParser:
    def __init__(self, network, logger):
        self.network, self.errors = network, []

    def parse_from_file(self, path):
        model = onnx.load(path)
        self.errors = [ParserError(node.op_type) for node in model.graph.node if node.domain == "nobody"]
        self.network.model = model
        return not self.errors

    @property
    def num_errors(self):
        return len(self.errors)

    def get_error(self, index):
        return self.errors[index]


class Runtime:
    def __init__(self, logger):
        pass

    def deserialize_cuda_engine(self, plan):
        return Engine(plan)


class Engine:
    def __init__(self, plan):
        self.session = onnxruntime.InferenceSession(plan, providers=["CPUExecutionProvider"])
        self.inputs = {each.name: each for each in self.session.get_inputs()}
        self.outputs = {each.name: each for each in self.session.get_outputs()}
        self.names = [*self.inputs, *self.outputs]

    @property
    def num_io_tensors(self):
        return len(self.names)

    def get_tensor_name(self, index):
        return self.names[index]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        kind = {**self.inputs, **self.outputs}[name].type
        return {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}[kind]

    def create_execution_context(self):
        return Context(self)


class Context:
    def __init__(self, engine):
        self.engine, self.shapes, self.addresses = engine, {}, {}

    def set_input_shape(self, name, shape):
        self.shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name):
        if name in self.shapes:
            return self.shapes[name]
        zeros = {each: np.zeros(shape, self.engine.get_tensor_dtype(each)) for each, shape in self.shapes.items()}
        (output,) = self.engine.session.run([name], zeros)
        return output.shape

    def set_tensor_address(self, name, address):
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        feed = {}
        for name, shape in self.shapes.items():
            array = np.empty(shape, self.engine.get_tensor_dtype(name))
            ctypes.memmove(array.ctypes.data, self.addresses[name], array.nbytes)
            feed[name] = array
        names = list(self.engine.outputs)
        for name, output in zip(names, self.engine.session.run(names, feed), strict=True):
            output = np.ascontiguousarray(output)
            ctypes.memmove(self.addresses[name], output.ctypes.data, output.nbytes)
        return True
