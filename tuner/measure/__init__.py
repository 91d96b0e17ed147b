"""Paired measurement, noise, finals and verdicts."""
