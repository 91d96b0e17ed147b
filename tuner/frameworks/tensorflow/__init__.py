"""TensorFlow: stock wheels, whose operators run on Eigen's thread pool, and OpenMP builds."""
