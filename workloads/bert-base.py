"""BERT-base with a classifier: 12 layers, width 768, 12 heads, sequences of 128"""

from _bert import classes, encoder, sentences

ITEM = "sequence"
BATCH_SIZE = 8
MODES = ("inference", "training")
SOURCE = "Devlin et al., NAACL 2019"
PARAMS = {"seq_len": 128}
LOSS, OPTIMIZER = "sparse_categorical_crossentropy", "adam"


def build(seq_len):
    """Return the model for sequences of `seq_len` words."""
    return encoder(seq_len, depth=12, width=768, heads=12)


def inputs(batch_size, seq_len):
    """Return one batch of words and segments."""
    return sentences(batch_size, seq_len)


def targets(batch_size):
    """Return the class of each sequence."""
    return classes(batch_size)
