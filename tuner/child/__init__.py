"""What runs outside of the tuner's own process: Python 3.9 and the standard library only; frameworks add their own."""
