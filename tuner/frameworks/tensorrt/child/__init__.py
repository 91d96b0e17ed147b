"""TensorRT in the target interpreter."""
