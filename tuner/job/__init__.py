"""Use cases: parse a request, resolve it on this machine, run it."""
