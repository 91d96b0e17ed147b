"""DCGAN, 64x64 colour images: inference draws images, training updates discriminator and generator in turn"""

ITEM = "image"
BATCH_SIZE = 64
MODES = ("inference", "training")
SOURCE = "Radford et al., ICLR 2016"
SEED = 20151119
LATENT, SIDE = 100, 64


def build():
    """Return the generator: four transposed convolutions from 4x4 to 64x64."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((LATENT,)), layers.Dense(4 * 4 * 1024), layers.Reshape((4, 4, 1024)), *_normal()]
    )
    for filters in (512, 256, 128):
        model.add(layers.Conv2DTranspose(filters, 5, strides=2, padding="same"))
        for layer in _normal():
            model.add(layer)
    model.add(layers.Conv2DTranspose(3, 5, strides=2, padding="same", activation="tanh"))
    return model


def _normal():
    import tensorflow as tf

    return [tf.keras.layers.BatchNormalization(), tf.keras.layers.ReLU()]


def discriminator():
    """Return four strided convolutions and one logit."""
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((SIDE, SIDE, 3))])
    for depth, filters in enumerate((128, 256, 512, 1024)):
        model.add(layers.Conv2D(filters, 5, strides=2, padding="same"))
        if depth:
            model.add(layers.BatchNormalization())
        model.add(layers.LeakyReLU(0.2))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


def inputs(batch_size):
    """Return one batch of latent vectors in [-1, 1)."""
    import numpy as np

    return (np.random.default_rng(SEED).random((batch_size, LATENT), dtype=np.float32) * 2 - 1,)


def targets(batch_size):
    """Return one batch of true images in [-1, 1)."""
    import numpy as np

    return (np.random.default_rng(SEED + 1).random((batch_size, SIDE, SIDE, 3), dtype=np.float32) * 2 - 1,)


def training(generator):
    """Return the step: latent vectors and true images to the losses of both networks, which are updated."""
    import tensorflow as tf

    critic = discriminator()
    of_critic, of_generator = (tf.keras.optimizers.Adam(2e-4, beta_1=0.5) for _ in range(2))
    of_critic.build(critic.trainable_variables)
    of_generator.build(generator.trainable_variables)

    def cross_entropy(logits, label):
        labels = tf.fill(tf.shape(logits), label)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))

    def step(latent, true):
        with tf.GradientTape(persistent=True) as tape:
            made = generator(latent, training=True)
            on_true, on_made = critic(true, training=True), critic(made, training=True)
            critic_loss = cross_entropy(on_true, 1.0) + cross_entropy(on_made, 0.0)
            generator_loss = cross_entropy(on_made, 1.0)
        for loss, model, optimizer in ((critic_loss, critic, of_critic), (generator_loss, generator, of_generator)):
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return {"critic_loss": critic_loss, "generator_loss": generator_loss}

    return step
