"""What computes a model: one folder a framework, behind one protocol."""
