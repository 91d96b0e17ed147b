"""NVIDIA."""
