"""NumPy in the target interpreter."""
