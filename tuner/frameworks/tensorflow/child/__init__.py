"""What runs in the target interpreter, beside the parts in `tuner.child`: Python 3.9, and TensorFlow only."""
