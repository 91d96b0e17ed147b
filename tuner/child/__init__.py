"""What runs outside of the tuner's own process: Python 3.9, the standard library and TensorFlow only."""
