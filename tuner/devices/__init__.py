"""What a model is computed on, one file each behind one class."""
