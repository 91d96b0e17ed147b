"""The Transformer (base) for translation: 6 + 6 layers, width 512, 8 heads, 37,000 words, sentences of 64"""

from _attention import attend, dropped, feed, words

ITEM = "sentence"
BATCH_SIZE = 8
MODES = ("inference", "training")
SOURCE = "Vaswani et al., NeurIPS 2017"
PARAMS = {"seq_len": 64, "vocabulary": 37000}
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
SEED = 20170612
DEPTH, WIDTH, HEADS = 6, 512, 8


def build(seq_len, vocabulary):
    """Return the model: a sentence and the words of its translation so far to the probabilities of the next words."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    source, so_far = (layers.Input((seq_len,), dtype="int32", name=name) for name in ("source", "so_far"))
    normal = tf.keras.initializers.RandomNormal(stddev=WIDTH**-0.5, seed=SEED)
    embedding, places = layers.Embedding(vocabulary, WIDTH, normal), tf.constant(_places(seq_len))
    encoded = dropped(embedding(source) * WIDTH**0.5 + places)
    for _ in range(DEPTH):
        encoded = feed(attend(encoded, encoded, HEADS), 4 * WIDTH, "relu")
    decoded = dropped(embedding(so_far) * WIDTH**0.5 + places)
    for _ in range(DEPTH):
        decoded = attend(attend(decoded, decoded, HEADS, causal=True), encoded, HEADS)
        decoded = feed(decoded, 4 * WIDTH, "relu")

    def likelihood(x):
        # The embedding, transposed, is the last layer too (the paper's section 3.4).
        words_like_it = tf.matmul(tf.reshape(x, (-1, WIDTH)), embedding.embeddings, transpose_b=True)
        return tf.nn.softmax(tf.reshape(words_like_it, (-1, seq_len, vocabulary)))

    return tf.keras.Model([source, so_far], layers.Lambda(likelihood)(decoded))


def inputs(batch_size, seq_len, vocabulary):
    """Return one batch of sentences and of their translations so far."""
    return words(batch_size, seq_len, vocabulary, SEED), words(batch_size, seq_len, vocabulary, SEED + 1)


def targets(batch_size, seq_len, vocabulary):
    """Return the word that follows each word of the translation."""
    return (words(batch_size, seq_len, vocabulary, SEED + 2),)


def _places(seq_len):
    """Return the sinusoidal positions, (1, seq_len, WIDTH), of the paper's section 3.5."""
    import numpy as np

    angle = np.arange(seq_len)[:, None] / 10000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(1, seq_len, WIDTH).astype(np.float32)
