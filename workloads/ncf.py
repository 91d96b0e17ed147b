"""Neural collaborative filtering: NeuMF on the users and films of MovieLens-20M, 64 factors, 256-256-128-64 dense"""

ITEM = "pair"
BATCH_SIZE = 1024
MODES = ("inference", "training")
SOURCE = "He et al., WWW 2017; sizes of MLPerf Training v0.5"
PARAMS = {"users": 138493, "films": 26744}
LOSS = "binary_crossentropy"
OPTIMIZER = "adam"
SEED = 20170403
FACTORS, TOWER = 64, (256, 128, 64)


def build(users, films):
    """Return the model: a user and a film give the probability that the two meet."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    user, film = layers.Input((), dtype="int32", name="user"), layers.Input((), dtype="int32", name="film")
    product = layers.Multiply()([layers.Embedding(users, FACTORS)(user), layers.Embedding(films, FACTORS)(film)])
    half = TOWER[0] // 2
    tower = layers.Concatenate()([layers.Embedding(users, half)(user), layers.Embedding(films, half)(film)])
    for width in TOWER:
        tower = layers.Dense(width, activation="relu")(tower)
    score = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([product, tower]))
    return tf.keras.Model([user, film], score)


def inputs(batch_size, users, films):
    """Return one batch of users and films."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    return (
        rng.integers(users, size=batch_size, dtype=np.int32),
        rng.integers(films, size=batch_size, dtype=np.int32),
    )


def targets(batch_size):
    """Return whether each pair met."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).integers(2, size=(batch_size, 1)).astype(np.float32),)
