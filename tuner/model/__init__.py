"""Graphs of workloads, and what follows from them."""
