"""Look at NumPy from inside the target interpreter; see `tuner.frameworks.probing.ask`."""

from tftune.child import probe_result


def describe(_):
    """Return its version."""
    import numpy

    return {"version": numpy.__version__}


def main(arguments):
    """Look, and write."""
    probe_result.write(arguments, describe)
