"""BERT's encoder with a classifier of two classes, as it is fine-tuned and served."""

from _attention import attend, dropped, feed, words

SEED = 20190602
VOCABULARY, POSITIONS, SEGMENTS, CLASSES = 30522, 512, 2, 2


def encoder(seq_len, *, depth, width, heads):
    """Return the model: words and segments, both (b, t), to class probabilities (b, 2)."""
    import tensorflow as tf

    if seq_len > POSITIONS:
        raise ValueError(f"seq_len is {seq_len}; BERT has {POSITIONS} positions")
    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    word, segment = (layers.Input((seq_len,), dtype="int32", name=name) for name in ("word", "segment"))
    # Made from `word`, so that the table of positions is part of the model, and is trained.
    places = layers.Lambda(lambda _: tf.range(seq_len)[None])(word)
    position = layers.Embedding(POSITIONS, width)(places)
    x = layers.Embedding(VOCABULARY, width)(word) + layers.Embedding(SEGMENTS, width)(segment) + position
    x = dropped(layers.LayerNormalization(epsilon=1e-12)(x))
    for _ in range(depth):
        x = feed(attend(x, x, heads), 4 * width, "gelu")
    pooled = dropped(layers.Dense(width, activation="tanh")(x[:, 0]))
    return tf.keras.Model([word, segment], layers.Dense(CLASSES, activation="softmax")(pooled))


def sentences(batch_size, seq_len):
    """Return one batch of words and segments."""
    import numpy as np

    segment = (np.arange(seq_len) >= seq_len // 2).astype(np.int32)
    return words(batch_size, seq_len, VOCABULARY, SEED), np.tile(segment, (batch_size, 1))


def classes(batch_size):
    """Return the class of each pair of sentences."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).integers(CLASSES, size=batch_size, dtype=np.int32),)
