"""A word-level LSTM language model: two layers of 650 units, 35 steps, 10,000 words"""

from _attention import words

ITEM = "sequence"
BATCH_SIZE = 20
MODES = ("inference", "training")
SOURCE = "Zaremba et al., 2014 (the medium model)"
PARAMS = {"units": 650, "seq_len": 35, "vocabulary": 10000}
LOSS = "sparse_categorical_crossentropy"
SEED = 20140908


def build(units, seq_len, vocabulary):
    """Return the model: words in, the probabilities of the next words out."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((seq_len,), dtype="int32"),
            layers.Embedding(vocabulary, units),
            layers.Dropout(0.5),
            layers.LSTM(units, return_sequences=True),
            layers.Dropout(0.5),
            layers.LSTM(units, return_sequences=True),
            layers.Dropout(0.5),
            layers.Dense(vocabulary, activation="softmax"),
        ]
    )


def inputs(batch_size, seq_len, vocabulary):
    """Return one batch of sentences."""
    return (words(batch_size, seq_len, vocabulary, SEED),)


def targets(batch_size, seq_len, vocabulary):
    """Return the word that follows each word."""
    return (words(batch_size, seq_len, vocabulary, SEED + 1),)
