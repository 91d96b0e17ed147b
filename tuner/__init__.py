"""tftune finds, proves and explains the parallelism settings of a TensorFlow workload."""

__version__ = "0.1.0"
