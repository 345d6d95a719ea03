"""The accepted file is the person's own: it needs jax[tpu] and nothing of ours."""

import subprocess
import sys

import pytest

from maxkernel_nb import api

ATTENTION = '''def attention(q, cache):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, cache["k"]) * 128 ** -0.5
    mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, s, -1e9), axis=-1)
    return {"out": jnp.einsum("bhqk,bhkd->bhqd", weights, cache["v"])}
'''
SHAPES = "q: bf16[1,8,2048,128], cache.k: bf16[1,8,2048,128], cache.v: bf16[1,8,2048,128]"

FRESH = """
import os, sys
os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1")
sys.modules["maxkernel_nb"] = None  # importing it would raise
sys.path.insert(0, sys.argv[1])
import jax
from jax.experimental import topologies
from jax.sharding import Mesh, SingleDeviceSharding, use_abstract_mesh
from attention import attention
topology = topologies.get_topology_desc(platform="tpu", topology_name="v6e:1x1", chips_per_host_bounds=(1, 1, 1))
device = topology.devices[0]
x = jax.ShapeDtypeStruct((1, 8, 2048, 128), "bfloat16", sharding=SingleDeviceSharding(device))
with use_abstract_mesh(Mesh([device], ("x",)).abstract_mesh):
    compiled = jax.jit(attention).lower(x, {"k": x, "v": x}).compile()
assert compiled.out_tree.num_leaves == 1 and "out" in str(compiled.out_tree)
print("custom calls:", compiled.as_text().count("tpu_custom_call"))
"""


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_it_compiles_for_the_chip_in_a_process_without_this_package(tmp_path):
    import jax
    import jax.numpy as jnp

    space = {"jax": jax, "jnp": jnp}
    exec(ATTENTION, space)
    decorate = api.maxkernel(
        inputs=None, source=ATTENTION, shapes=SHAPES, chip="v6e", project=tmp_path, tuning_points=0,
    )  # the decorator: the same run without magics
    kernel = decorate(space["attention"])
    assert kernel.run.state.speedup > 1
    assert "def attention(q, cache):" in kernel.source
    told = subprocess.run(
        [sys.executable, "-c", FRESH, str(kernel.path.parent)], capture_output=True, text=True, timeout=200,
        cwd=tmp_path,
    )
    assert told.stdout.startswith("custom calls: "), told.stderr[-2000:]
    assert int(told.stdout.split(": ")[1]) >= 1
