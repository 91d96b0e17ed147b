"""Look at NumPy from inside the target interpreter; see `tuner.child.probe`."""


def describe(_):
    """Return its version."""
    import numpy

    return {"numpy": numpy.__version__}
