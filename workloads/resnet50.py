"""ResNet-50 (He et al., 2016) as Keras builds it: 1,000 classes, 224x224 colour images, random weights."""

ITEM = "image"
BATCH_SIZE = 8
SEED = 20160627
SHAPE = (224, 224, 3)


def build():
    """Return the model; the weights are random, which costs the same time as trained ones."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    return tf.keras.applications.ResNet50(weights=None, input_shape=SHAPE)


def inputs(batch_size):
    """Return one batch of images with pixels in [0, 1)."""
    import numpy as np

    return (np.random.default_rng(SEED).random((batch_size, *SHAPE), dtype=np.float32),)
