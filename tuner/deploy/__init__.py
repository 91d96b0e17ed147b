"""Deploying a recommendation: starting the user's own program with it."""
