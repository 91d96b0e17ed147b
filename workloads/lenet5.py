"""LeNet-5, digits on 32x32 grey images: two convolutions, average pooling, three dense layers, tanh"""

from _images import images, labels

ITEM = "image"
BATCH_SIZE = 64
MODES = ("inference", "training")
SOURCE = "LeCun et al., Proc. IEEE 1998"
LOSS = "sparse_categorical_crossentropy"
SEED = 19981101
CLASSES = 10


def build():
    """Return the model."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((32, 32, 1)),
            layers.Conv2D(6, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(120, 5, activation="tanh"),
            layers.Flatten(),
            layers.Dense(84, activation="tanh"),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def inputs(batch_size):
    """Return one batch of images."""
    return images(batch_size, 32, 32, 1)


def targets(batch_size):
    """Return the digit of each image."""
    return labels(batch_size, CLASSES)
