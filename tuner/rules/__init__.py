"""Rules: learned from many studies, tested on held-out ones, applied to new workloads."""
