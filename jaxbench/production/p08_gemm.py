"""8p: matrix product. A: (M, K), B: (K, N), result (M, N), one rounding from a float32 sum."""

from jaxbench import work
from jaxbench.spec import creator, normal, weight

ID = "8p_GEMM"
SOURCE_MODEL = "Llama-3.1-70B (MLP up projection)"
CONFIG = {"M": 8192, "K": 8192, "N": 28672}
SMOKE = {"M": 256, "K": 256, "N": 896}


def inputs(d):
    return (
        normal("A", (d.M, d.K), key=(42, 0)),
        weight("B", (d.K, d.N), d.K, key=(42, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(A, B):
    return A @ B


def flops(d):
    return work.matmul(d.M, d.K, d.N)
