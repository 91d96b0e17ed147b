"""Knobs, settings, the search space they span on a machine, and the recommended baselines."""
