"""Look at NumPy from inside the target interpreter; see `tuner.frameworks.probing.run_probe`."""

from tftune.child import probe_result


def describe(_):
    """Return its version."""
    import numpy

    return {"numpy": numpy.__version__}


def main(arguments):
    """Look, and write."""
    probe_result.write(arguments, describe)
