"""9p: gated MLP, ``(silu(x @ gate) * (x @ up)) @ down``. x and result: (batch, seq_len, emb_dim); hidden mlp_dim."""

import jax

from jaxbench import work
from jaxbench.spec import creator, normal, weight

ID = "9p_SwiGLU_MLP"
SOURCE_MODEL = "Llama-3.1-70B"
CONFIG = {"batch": 2, "seq_len": 4096, "emb_dim": 8192, "mlp_dim": 28672}
SMOKE = {"batch": 1, "seq_len": 128, "emb_dim": 256, "mlp_dim": 896}


def inputs(d):
    return (
        normal("x", (d.batch, d.seq_len, d.emb_dim), key=(42, 0)),
        weight("gate_kernel", (d.emb_dim, d.mlp_dim), d.emb_dim, key=(42, 1)),
        weight("up_kernel", (d.emb_dim, d.mlp_dim), d.emb_dim, key=(42, 2)),
        weight("down_kernel", (d.mlp_dim, d.emb_dim), d.mlp_dim, key=(42, 3)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, gate_kernel, up_kernel, down_kernel):
    return (jax.nn.silu(x @ gate_kernel) * (x @ up_kernel)) @ down_kernel


def flops(d):
    """Three products of the same size."""
    return 3 * work.matmul(d.batch * d.seq_len, d.emb_dim, d.mlp_dim)
