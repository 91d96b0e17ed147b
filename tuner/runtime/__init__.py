"""The TensorFlow build inside the target interpreter."""
