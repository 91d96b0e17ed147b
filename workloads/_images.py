"""Images and their classes, for the workloads that classify them."""

SEED = 20160627
CLASSES = 1000


def images(batch_size, *shape):
    """Return one batch of images with pixels in [0, 1), float32."""
    import numpy as np

    return (np.random.default_rng(SEED).random((batch_size, *shape), dtype=np.float32),)


def labels(batch_size, classes=CLASSES):
    """Return the class of each image, int32."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).integers(classes, size=batch_size, dtype=np.int32),)


def application(name, *shape):
    """Return a model of keras.applications with seeded random weights, its outputs probabilities."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    return getattr(tf.keras.applications, name)(weights=None, input_shape=shape)
