"""TensorRT."""
