"""What is timed: finding a workload, by name or path, without running it; commands."""
