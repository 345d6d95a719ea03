"""32k: ``logsumexp(sigmoid(x @ w1.T + b1) @ w2.T + b2)`` over features. Result (batch_size,).

x: (batch_size, input_size); w1: (hidden_size, input_size); w2: (output_size, hidden_size).

With published inputs every row rounds to the same bfloat16 number; in ours rows differ by a common shift that both
layers carry on.
"""

import jax

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "32k_Gemm_Sigmoid_LogSumExp"
SOURCE_MODEL = "KernelBench level 2 problem 45"
CONFIG = {"batch_size": 16384, "input_size": 2048, "hidden_size": 4096, "output_size": 1024}
SMOKE = {"batch_size": 128, "input_size": 256, "hidden_size": 512, "output_size": 128}
IDLE = {"sign": "a sum of exponentials is positive", "abs": "a sum of exponentials is positive"}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.input_size), key=(0,)),
        weight("w1", (d.hidden_size, d.input_size), d.input_size, key=(42, 0), drift=1.0),
        bias("b1", (d.hidden_size,), key=(42, 1)),
        weight("w2", (d.output_size, d.hidden_size), d.hidden_size, key=(42, 2), drift=0.25),
        bias("b2", (d.output_size,), key=(42, 3)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, w1, b1, w2, b2):
    hidden = jax.nn.sigmoid(x @ w1.T + b1)
    return jax.nn.logsumexp(hidden @ w2.T + b2, axis=1)


def flops(d):
    first = work.matmul(d.batch_size, d.input_size, d.hidden_size)
    return first + work.matmul(d.batch_size, d.hidden_size, d.output_size)
