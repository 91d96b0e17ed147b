"""VGG19, 1,000 classes, 224x224 colour images"""

from _images import application, images, labels

ITEM = "image"
BATCH_SIZE = 4
MODES = ("inference", "training")
SOURCE = "Simonyan & Zisserman, ICLR 2015"
PARAMS = {"size": 224}
LOSS = "sparse_categorical_crossentropy"


def build(size):
    """Return the model for images of size x size pixels."""
    return application("VGG19", size, size, 3)


def inputs(batch_size, size):
    """Return one batch of images."""
    return images(batch_size, size, size, 3)


def targets(batch_size):
    """Return the class of each image."""
    return labels(batch_size)
