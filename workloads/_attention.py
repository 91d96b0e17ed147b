"""Transformer blocks and their inputs, for the workloads that are made of them."""

DROPOUT = 0.1


def dropped(x):
    """Return x with a tenth of it left out, in training."""
    import tensorflow as tf

    return tf.keras.layers.Dropout(DROPOUT)(x)


def attend(query, keys, heads, *, causal=False):
    """Return multi-head attention of `query` over `keys`, added to `query` and normalised; both (b, t, width)."""
    import tensorflow as tf

    width = query.shape[-1]
    attention = tf.keras.layers.MultiHeadAttention(heads, width // heads)
    attended = dropped(attention(query, keys, use_causal_mask=causal))
    return tf.keras.layers.LayerNormalization(epsilon=1e-12)(tf.keras.layers.Add()([query, attended]))


def feed(x, inner, activation):
    """Return x (b, t, width) through two dense layers, the first `inner` wide, added to x and normalised."""
    import tensorflow as tf

    layers = tf.keras.layers
    fed = dropped(layers.Dense(x.shape[-1])(layers.Dense(inner, activation=activation)(x)))
    return layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, fed]))


def words(batch_size, seq_len, vocabulary, seed):
    """Return one batch of sentences, int32 (b, t)."""
    import numpy as np

    return np.random.default_rng(seed).integers(vocabulary, size=(batch_size, seq_len), dtype=np.int32)
