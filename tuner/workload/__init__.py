"""What is timed: finding a workload by name and exporting its model once."""
