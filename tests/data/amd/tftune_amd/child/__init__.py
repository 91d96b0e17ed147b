"""AMD's GPUs in the target interpreter."""
