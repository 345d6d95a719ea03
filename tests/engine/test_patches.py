import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxkernel_nb.errors import UsageError
from maxkernel_nb.patches import make_patch

texts = st.lists(st.sampled_from(["a", "b", "c", "", "  d"]), max_size=12).map("\n".join)


@given(texts, texts)
def test_all_hunks_give_the_proposal_and_none_the_exact_baseline(old, new):
    patch = make_patch(old, new)
    assert patch.apply() == new
    assert patch.apply([]) == old


@given(texts, texts, st.data())
def test_accepting_some_hunks_then_the_rest_of_a_new_patch_reaches_the_proposal(old, new, data):
    patch = make_patch(old, new)
    some = data.draw(st.sets(st.sampled_from([h.number for h in patch.hunks]))) if patch.hunks else set()
    assert make_patch(patch.apply(some), new).apply() == new


def test_an_unknown_hunk_is_named():
    with pytest.raises(UsageError, match="no hunk 7"):
        make_patch("a\n", "b\n").apply([7])
