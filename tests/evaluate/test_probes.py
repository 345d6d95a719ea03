"""Changed inputs: which are found for a reference, what they catch, and that every process draws the same."""

import jax
import jax.numpy as jnp
import numpy as np

from maxkernel_nb.evaluate.probes import ProbeKind, drawn, find
from maxkernel_nb.task import ArgSpec, Case, CaseRole, Draw, KernelTask, Tolerance


def case(*args):
    return Case(name="c", role=CaseRole.CHECK, args=args)


def arg(name, shape=(16, 64), dtype="float32", **draw):
    return ArgSpec(name=name, shape=shape, dtype=dtype, draw=Draw(**draw))


def found(function, about):
    def own(arrays):
        return [np.asarray(o) for o in jax.tree.leaves(function(*map(jnp.asarray, arrays)))]

    def oracle(arrays):
        with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
            wide = [jnp.asarray(a.astype(np.float64) if a.dtype.kind == "f" else a) for a in arrays]
            return [np.asarray(o) for o in jax.tree.leaves(function(*wide))]

    return find(about, 0, own, oracle, Tolerance())


def named(probes, kind):
    return [p for p in probes if p.kind is kind]


def test_relations_of_rows_are_found_where_they_hold():
    kinds = {p.kind for p in found(lambda x: jax.nn.softmax(x, axis=-1), case(arg("x")))}
    assert {ProbeKind.PERMUTED, ProbeKind.JOINED} <= kinds
    kinds = {p.kind for p in found(lambda x: x - jnp.mean(x, axis=0), case(arg("x")))}
    assert ProbeKind.JOINED not in kinds, "the rows belong together"


def test_scaling_is_found_where_it_holds():
    (probe,) = named(found(lambda x, y: x * jnp.abs(y), case(arg("x"), arg("y"))), ProbeKind.SCALED)
    assert probe.factor == 4.0
    assert not named(found(lambda x: jnp.exp(x), case(arg("x"))), ProbeKind.SCALED)


def test_an_argument_too_small_to_be_seen_is_amplified_and_a_plain_one_is_not():
    larger = named(found(lambda x, b: x + b, case(arg("x"), arg("b", std=1e-9))), ProbeKind.LARGER)
    assert [p.name for p in larger] == ["a larger b"] and larger[0].factor > 1


def test_no_probe_leaves_the_function_s_domain():
    about = case(arg("x"), arg("v", mean=1.0, std=0.1))
    for probe in found(lambda x, v: x / jnp.sqrt(v), about):
        assert (drawn(about, 0, probe)[1] > 0).all(), probe


def test_an_ignored_argument_has_no_influence_to_test():
    probes = found(lambda x, y: x * 2 + 0 * y, case(arg("x"), arg("y")))
    assert not [p for p in probes if p.args == (1,) and not p.relation]


def test_index_arguments_stay_in_their_range_and_fitted_ones_whole():
    ids = arg("ids", (16,), "int32", kind="integers", low=0, high=16)
    order = arg("order", (16,), "int32", kind="permutation", high=16)
    about = case(arg("x"), ids, order)
    probes = found(lambda x, ids, order: x[ids] + x[order], about)
    assert named(probes, ProbeKind.ELEMENT)
    for probe in probes:
        arrays = drawn(about, 0, probe)
        assert arrays[1].min() >= 0 and arrays[1].max() < 16
        assert sorted(arrays[2]) == list(range(16))


def test_a_mask_in_a_float_type_stays_a_mask():
    about = case(arg("x", dtype="bfloat16"), arg("mask", (16, 1), "bfloat16", kind="bernoulli", mean=0.9))
    probes = [p for p in found(lambda x, mask: x * mask, about) if p.args == (1,)]
    assert {ProbeKind.ELEMENT, ProbeKind.TAIL} <= {p.kind for p in probes}
    for probe in probes:
        if not probe.relation:
            assert set(np.unique(drawn(about, 0, probe)[1].astype(np.float32))) <= {0.0, 1.0}, probe


def test_probes_are_drawn_the_same_everywhere_and_survive_the_wire():
    about = case(arg("x"), arg("b", (64,)))
    for probe in found(lambda x, b: x * b, about):
        again = type(probe).from_dict(probe.to_dict())
        for one, other in zip(drawn(about, 3, probe), drawn(about, 3, again), strict=True):
            assert one.tobytes() == other.tobytes()


def test_a_salt_changes_every_draw_and_nothing_else():
    plain = KernelTask(name="t", source="", entry="t", params=("x",), cases=(case(arg("x")),))
    salted = plain.model_copy(update={"salt": "a"})
    again = KernelTask.from_dict(salted.to_dict())
    assert [plain.draws(s) for s in (0, 1)] == [0, 1]
    assert salted.draws(0) == again.draws(0) != plain.draws(0)
    assert salted.draws(0) != salted.model_copy(update={"salt": "b"}).draws(0)
    assert 0 <= salted.draws(0) < 2**31
