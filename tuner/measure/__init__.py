"""Pairs, statistics, finals and verdicts."""
