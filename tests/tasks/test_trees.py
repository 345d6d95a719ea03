"""Functions that take and return dicts, lists and tuples of arrays, as layers with parameters do."""

import ast

import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from maxkernel_nb.authors.recipes.base import Signature  # noqa: E402
from maxkernel_nb.authors.recipes.returns import with_results  # noqa: E402
from maxkernel_nb.authors.recipes.signature import signature_of  # noqa: E402
from maxkernel_nb.errors import Declined, UsageError  # noqa: E402
from maxkernel_nb.evaluate.ops_suite import Kept  # noqa: E402
from maxkernel_nb.task import KernelTask  # noqa: E402
from maxkernel_nb.tasks.build import build_task, trace_case  # noqa: E402
from maxkernel_nb.tasks.inputs import resolve_inputs  # noqa: E402
from maxkernel_nb.tasks.trees import identifiers, results_of  # noqa: E402


def layer(x, params, mask=(1, 2)):
    for block in params["blocks"]:
        x = jax.nn.relu(x @ block["w"] + block["b"]) * params["scale"]
    return x, {"last": x[:1]}


SHAPES = ("x: f32[256,128], params.blocks.0.w: f32[128,128], params.blocks.0.b: f32[128], "
          "params.blocks.1.w: f32[128,128], params.blocks.1.b: f32[128], params.scale: f32[]")


@pytest.fixture(scope="module")
def task():
    return build_task(layer, shapes=SHAPES, store=Kept()).task


def test_each_array_is_an_argument_with_a_name_and_the_function_keeps_its_parameters(task):
    assert [a.name for a in task.timing_case.args][:2] == ["x", "params.blocks.0.w"]
    assert task.params == ("x", "blocks_0_w", "blocks_0_b", "blocks_1_w", "blocks_1_b", "scale")
    assert task.parameters == ("x", "params")


def test_check_cases_scale_dimensions_that_belong_together_across_the_tree(task):
    for case in task.check_cases:
        x, w, b = (arg.shape for arg in case.args[:3])
        assert x[1] == w[0] == w[1] == b[0]


def test_a_task_from_the_journal_traces_the_function_again(task):
    again = KernelTask.from_dict(task.to_dict())
    assert len(trace_case(layer, again, "timing").in_avals) == 6


def test_arrays_in_the_notebook_a_generator_and_shapes_describe_the_same_arguments():
    params = {"blocks": [{"w": jnp.ones((4, 4)), "b": jnp.ones(4)}], "scale": 2.0}
    by_variable = resolve_inputs(layer, namespace={"x": jnp.ones((8, 4)), "params": params})
    made = resolve_inputs(layer, inputs=lambda key: (jax.random.normal(key, (8, 4)), params))
    assert by_variable.trees == made.trees
    assert [a.name for a in made.args] == ["x", "params.blocks.0.w", "params.blocks.0.b"]
    assert "mask" not in made.static  # a default that is no array is the function's own


def test_a_generator_may_give_the_only_parameter_as_a_dict():
    found = resolve_inputs(lambda params: params["w"], inputs=lambda key: {"w": jax.random.normal(key, (3, 4))})
    assert [a.name for a in found.args] == ["params.w"]


def test_a_named_tuple_is_refused_with_the_remedy():
    import collections

    pair = collections.namedtuple("Pair", "a b")(jnp.ones(3), jnp.ones(3))
    with pytest.raises(UsageError, match=r"'params' is a Pair; make it a dict"):
        resolve_inputs(lambda params: params.a, inputs=(pair,))


@pytest.mark.parametrize(("names", "words"), [
    (["x", "p.w", "p.b"], ("x", "w", "b")),
    (["p.0.w", "p.1.w"], ("p_0_w", "p_1_w")),
    (["w", "p.w"], ("w", "p_w")),
    (["p.a-b", "p.a_b"], ("p_a_b_2", "p_a_b_3")),
    (["p.lambda", "p.jnp"], ("p_lambda", "p_jnp")),
])  # fmt: skip
def test_names_for_arrays_are_short_unique_and_python(names, words):
    assert identifiers(names) == words


def test_a_kernel_takes_the_parameters_as_written_and_refuses_other_fixed_values():
    def heads(x, params, n=2):
        return x @ params["w"] * params["heads"] * n

    inputs = (jnp.ones((8, 4)), {"w": jnp.ones((4, 4)), "heads": 8})
    written = signature_of(build_task(heads, inputs=inputs, store=Kept(), cases=_cases(8, 16, 24)).task)
    assert (written.header, written.within) == ("x, params, n=2", {"w": 'params["w"]'})
    assert written.fixed == {'params["heads"]': 8}


def _cases(*rows):
    return [f"x: f32[{n},4]" for n in rows]


KERNEL = '''
def _inner(x):
    return x

def f(x):
    if x.ndim != 2:
        return _inner(
            x)
    return x * 2, x.sum()
'''


def test_results_are_put_into_the_structure_of_the_reference():
    one = Signature(entry="f", header="x", params=("x",), returns=results_of({"y": (jnp.ones(3),)}))
    text = with_results("def f(x):\n    def g(y):\n        return y\n    return g(x)  # as is\n", one)
    assert text == 'def f(x):\n    def g(y):\n        return y\n    return {"y": (g(x),)}  # as is\n'
    two = one.model_copy(update={"returns": results_of({"a": jnp.ones(3), "b": [jnp.ones(3)]})})
    assert 'return {"a": x * 2, "b": [x.sum()]}' in with_results(KERNEL.replace("_inner(\n            x)", "x, x"), two)
    with pytest.raises(Declined, match="returns 2 arrays"):
        with_results(KERNEL, two)
    assert ast.parse(text) and results_of(jnp.ones(3)) is None
