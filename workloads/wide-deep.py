"""Wide & Deep on the columns of Criteo: 26 categories, 13 numbers, embeddings of 32, dense 1024-512-256"""

ITEM = "row"
BATCH_SIZE = 512
MODES = ("inference", "training")
SOURCE = "Cheng et al., DLRS 2016"
PARAMS = {"vocabulary": 20000}
LOSS = "binary_crossentropy"
OPTIMIZER = "adagrad"
SEED = 20160915
CATEGORIES, NUMBERS, FACTORS, TOWER = 26, 13, 32, (1024, 512, 256)


def build(vocabulary):
    """Return the model; each category has `vocabulary` values and tables of its own."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    categories = layers.Input((CATEGORIES,), dtype="int32", name="categories")
    numbers = layers.Input((NUMBERS,), name="numbers")
    columns = [categories[:, i] for i in range(CATEGORIES)]
    deep = layers.Concatenate()([*(layers.Embedding(vocabulary, FACTORS)(column) for column in columns), numbers])
    for width in TOWER:
        deep = layers.Dense(width, activation="relu")(deep)
    wide = layers.Add()([layers.Embedding(vocabulary, 1)(column) for column in columns])
    logit = layers.Add()([layers.Dense(1)(deep), wide])
    return tf.keras.Model([categories, numbers], layers.Activation("sigmoid")(logit))


def inputs(batch_size, vocabulary):
    """Return one batch of rows."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    return (
        rng.integers(vocabulary, size=(batch_size, CATEGORIES), dtype=np.int32),
        rng.random((batch_size, NUMBERS), dtype=np.float32),
    )


def targets(batch_size):
    """Return whether each row was clicked."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).integers(2, size=(batch_size, 1)).astype(np.float32),)
