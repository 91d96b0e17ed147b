"""The Python API: what the command line does, as functions that return typed results.

    import tuner

    study = tuner.search("resnet50", time_budget="5m")
    print(study)  # the card; a notebook shows it by itself
    print(study.emit("k8s"))

Every function takes its options by name, and raises `tuner.BadInputError` for what cannot be asked. The command line
calls the same functions. What is public is listed in `tuner`.
"""

import warnings

# Optuna asks for a progress bar that a notebook without ipywidgets does not have; none is shown by tftune.
warnings.filterwarnings("ignore", message="IProgress not found")
