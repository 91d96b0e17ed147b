"""One square matrix product, the microbenchmark of Wang et al."""

ITEM = "product"
BATCH_SIZE = 1
MODES = ("inference",)
SOURCE = "Wang et al., ACM TACO 2021"
PARAMS = {"size": 2048}
SEED = 2021


def build(size):
    """Return x -> x W for matrices of size x size."""
    import numpy as np
    import tensorflow as tf

    drawn = np.random.default_rng(SEED).standard_normal((size, size), dtype=np.float32)
    weights = tf.Variable(drawn / np.sqrt(np.float32(size)))

    def product(x):
        return tf.reshape(tf.matmul(tf.reshape(x, (-1, size)), weights), (-1, size, size))

    return product


def inputs(batch_size, size):
    """Return one batch of matrices, standard normal."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).standard_normal((batch_size, size, size), dtype=np.float32),)
