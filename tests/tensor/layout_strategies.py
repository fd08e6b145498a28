"""Random layouts, small enough to be compared with brute force."""

from hypothesis import strategies as st

from tilekit.tensor import Layout
from tilekit.tensor.nested import flat, refilled

extents = st.integers(1, 6)
any_strides = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20])
some_gaps = st.sampled_from([1, 1, 2, 3])


def shapes(leaf=extents, *, leaves=4):
    """Nested tuples of `leaf`, of up to `leaves` integers."""
    return st.recursive(leaf, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=leaves)


@st.composite
def layouts(draw, *, leaf=extents, leaves=4, strides=any_strides):
    """Any layout of at most 96 coordinates; by default with broadcast, padded and overlapping modes."""
    shape = draw(shapes(leaf, leaves=leaves).filter(lambda s: Layout(s).size <= 96))
    return Layout(shape, refilled(shape, [draw(strides) for _ in flat(shape)]))


@st.composite
def tidy_layouts(draw, *, leaves=4, gaps=some_gaps):
    """Layouts whose gaps are modes: strides are products, in any order of the leaves."""
    shape = draw(shapes(leaves=leaves).filter(lambda s: Layout(s).size <= 96))
    leaf_extents = flat(shape)
    strides = [0] * len(leaf_extents)
    running = 1
    for leaf in draw(st.permutations(range(len(leaf_extents)))):
        running *= draw(gaps)
        strides[leaf] = running
        running *= leaf_extents[leaf]
    return Layout(shape, refilled(shape, strides))


def compact_layouts(*, leaves=4):
    """Bijections onto ``range(size)``: a permutation of column-major modes."""
    return tidy_layouts(leaves=leaves, gaps=st.just(1))
