"""Devices in the target interpreter."""
