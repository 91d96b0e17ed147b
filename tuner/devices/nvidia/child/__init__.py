"""NVIDIA's GPUs in the target interpreter."""
