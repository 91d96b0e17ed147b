"""ONNX Runtime in the target interpreter."""
