"""NumPy as the worker asks for it; see `tuner.child.adapter`."""

from tftune.child import effective, inputs


def load():
    """Import NumPy."""
    import numpy

    return numpy


def export(spec):
    """Write what the inputs are: there is no model but the code."""
    arrays, _ = inputs.batch_of(inputs.load_module(spec["workload"]), spec, 2)
    described = [
        {"name": f"input_{i}", "dtype": each.dtype.name, "shape": [None, *each.shape[1:]]}
        for i, each in enumerate(arrays)
    ]
    inputs.write_described(spec["folder"], described, graph=None)


class Model:
    """A function of arrays; see `tuner.child.adapter.Model`."""

    def __init__(self, spec, described):
        self.spec = spec
        self.described = described

    def arguments(self, batch_size):
        """Return the arrays of one call."""
        import numpy as np

        return inputs.arguments_of(self.spec, batch_size, self.described, np.dtype)

    def start(self):
        """Do nothing: the threads came with the import."""

    def load(self):
        """Make the function."""
        self.call = inputs.called(inputs.load_module(self.spec["workload"]).build, params=self.spec["params"])

    def step(self, arrays):
        """Return a call of it."""
        call = self.call
        return lambda: call(*arrays)

    def floats(self, outputs):
        """Return its output."""
        return {"output": outputs}

    def state(self, log):
        """Return how many threads there are."""
        return {"blas_threads": len(effective.threads())}
