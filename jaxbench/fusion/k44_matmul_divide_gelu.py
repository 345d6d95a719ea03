"""44k: ``gelu((x @ weight + bias) / divisor)``. x: (batch_size, input_size).

Divided by ten, published values stay where GELU is a parabola; ours are wide enough to leave it.
"""

from jaxbench import work
from jaxbench.idioms import gelu
from jaxbench.spec import activations, bias, creator, weight

ID = "44k_Matmul_Divide_GELU"
SOURCE_MODEL = "KernelBench level 2 problem 86"
CONFIG = {"batch_size": 4096, "input_size": 8192, "output_size": 8192, "divisor": 10.0}
SMOKE = {"batch_size": 128, "input_size": 256, "output_size": 512}
IDLE = {"integer_pow": "the cubic term moves GELU by less than bfloat16 shows here"}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.input_size), key=(0,)),
        weight("weight", (d.input_size, d.output_size), d.input_size, key=(0xBADC0DE, 0), gain=8.0),
        bias("bias", (d.output_size,), key=(0xBADC0DE, 1), std=4.0),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, *, divisor):
    return gelu((x @ weight + bias) / divisor)


def flops(d):
    return work.matmul(d.batch_size, d.input_size, d.output_size)
