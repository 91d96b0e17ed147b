"""A multilayer perceptron: 784 inputs, hidden dense layers with ReLU, 10 classes"""

ITEM = "vector"
BATCH_SIZE = 128
MODES = ("inference", "training")
SOURCE = "Simard et al., ICDAR 2003, with the usual widths of today"
PARAMS = {"width": 1024, "depth": 4}
LOSS = "sparse_categorical_crossentropy"
SEED = 20030803
FEATURES, CLASSES = 784, 10


def build(width, depth):
    """Return the model of `depth` hidden layers, each `width` wide."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    hidden = [layers.Dense(width, activation="relu") for _ in range(depth)]
    return tf.keras.Sequential([layers.Input((FEATURES,)), *hidden, layers.Dense(CLASSES, activation="softmax")])


def inputs(batch_size):
    """Return one batch of vectors in [0, 1)."""
    import numpy as np

    return (np.random.default_rng(SEED).random((batch_size, FEATURES), dtype=np.float32),)


def targets(batch_size):
    """Return the class of each vector."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).integers(CLASSES, size=batch_size, dtype=np.int32),)
