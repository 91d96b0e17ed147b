"""A search as a user asks for it: understood, resolved on this machine, run."""
