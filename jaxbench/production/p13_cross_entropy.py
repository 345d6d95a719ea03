"""13p: mean cross-entropy of a language model's head, as one float32 number.

hidden: (batch_tokens, hidden_dim); weight: (hidden_dim, vocab_size); labels: (batch_tokens,) int32.

Published logits have a spread of 1.3, so the loss is ln(vocab_size) + 0.8 whatever the labels and nearly whatever the
data. Ours have a spread of 3, and it matters which tokens are averaged.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import wide
from jaxbench.spec import Draw, Input, creator, integer_recipe, normal, weight

ID = "13p_Cross_Entropy"
SOURCE_MODEL = "Llama-3.1-8B"
CONFIG = {"batch_tokens": 8192, "hidden_dim": 4096, "vocab_size": 128256}
SMOKE = {"batch_tokens": 128, "hidden_dim": 256, "vocab_size": 1920}


def inputs(d):
    labels = Draw(kind="integers", high=d.vocab_size)
    return (
        normal("hidden", (d.batch_tokens, d.hidden_dim), key=(42, 0)),
        weight("weight", (d.hidden_dim, d.vocab_size), d.hidden_dim, key=(42, 1), gain=3.0),
        Input("labels", (d.batch_tokens,), integer_recipe((42, 2), d.vocab_size), labels, "int32"),
    )


create_inputs = creator(inputs, CONFIG)


def reference(hidden, weight, labels):
    log_probability = jax.nn.log_softmax(hidden @ weight, axis=-1)
    picked = jnp.take_along_axis(log_probability, labels[:, None], axis=-1)
    return -jnp.mean(wide(picked))


def flops(d):
    """The logits."""
    return work.matmul(d.batch_tokens, d.hidden_dim, d.vocab_size)
