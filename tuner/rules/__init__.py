"""Guideline rules: learned from many studies, proven on what they have not seen, applied to the next workload."""
