"""Every operation of the algebra against its definition, by brute force over random layouts."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layout_strategies import compact_layouts, extents, layouts, tidy_layouts

from tilekit.tensor import Layout, LayoutError
from tilekit.tensor.modes import Mode, coalesced
from tilekit.tensor.nested import congruent, flat, nearest_divisors


def tried(operation):
    """The result, or None where the operation is refused (which other tests show to be right)."""
    try:
        return operation()
    except LayoutError:
        return None


@given(layouts())
def test_coalesce_is_the_same_function_and_minimal(layout):
    """Coalescing keeps every offset, and no two neighbouring modes could still be merged."""
    result = layout.coalesce()
    assert result.offsets() == layout.offsets()
    assert result.depth <= 1
    assert all(a.shape * a.stride != b.stride for a, b in itertools.pairwise(result.leaves))
    assert result == Layout(1, 0) or all(mode.shape > 1 for mode in result.leaves)


@given(layouts())
def test_filter_keeps_the_set_of_offsets(layout):
    """Filtering drops broadcast modes: the same offsets, and no stride 0 left unless nothing else is."""
    result = layout.filter()
    assert set(result.offsets()) == set(layout.offsets())
    assert result == Layout(1, 0) or all(mode.stride > 0 for mode in result.leaves)


@settings(max_examples=400)
@given(layouts(), layouts())
def test_composition_is_pointwise(outer, inner):
    """Where composition is granted it equals outer(inner(i)) everywhere, and nests like the inner layout."""
    result = tried(lambda: outer @ inner)
    assume(result is not None)
    assert [result(i) for i in range(result.size)] == [outer(inner(i)) for i in range(inner.size)]
    assert inner.depth == 0 or [mode.size for mode in result] == [mode.size for mode in inner]


@settings(max_examples=200)
@given(tidy_layouts(), compact_layouts(), st.data())
def test_composition_with_part_of_a_permutation_is_pointwise(outer, permutation, data):
    """The same for an inner layout that takes some modes of a permutation, where most compositions exist."""
    inner = data.draw(st.sampled_from([permutation, *permutation, *permutation.flatten()]))
    result = tried(lambda: outer @ inner)
    assume(result is not None)
    assert result.offsets() == tuple(outer(i) for i in inner.offsets())


@given(st.lists(st.tuples(st.integers(2, 4), st.integers(1, 12)), min_size=2, max_size=3), st.data())
def test_composition_along_the_modes_never_refuses(modes, data):
    """A stride made of whole leading extents and a factor of the next, with a shape to match, always composes."""
    outer = Layout(tuple(m[0] for m in modes), tuple(m[1] for m in modes))
    start = data.draw(st.integers(0, len(modes) - 1))
    before = Layout(tuple(m[0] for m in modes[:start]) or 1).size
    extent = modes[start][0]
    step = data.draw(st.sampled_from([d for d in range(1, extent + 1) if extent % d == 0]))
    stop = data.draw(st.integers(start + 1, len(modes)))
    count = extent // step * Layout(tuple(m[0] for m in modes[start + 1 : stop]) or 1).size
    inner = Layout(count, before * step)
    assert (outer @ inner).offsets() == tuple(outer(i) for i in inner.offsets())


@given(st.data())
def test_refused_sums_really_carry(data):
    """Where each inner mode stays inside an outer one but their sum does not, adding them up would be wrong."""
    extent, stride = data.draw(st.integers(3, 12)), data.draw(st.integers(0, 5))
    carried = data.draw(st.integers(0, 60).filter(lambda d: d != extent * stride))
    outer = Layout((extent, 4), (stride, carried))
    steps = data.draw(st.tuples(st.integers(1, extent - 1), st.integers(1, extent - 1)))
    inner = Layout(tuple(data.draw(st.integers(2, (extent - 1) // step + 1)) for step in steps), steps)
    apparent = Layout.from_modes(*(outer @ mode for mode in inner))
    pointwise = tuple(outer(i) for i in inner.offsets())
    if inner.cosize > extent:
        assert apparent.offsets() != pointwise
        with pytest.raises(LayoutError, match="carries into mode 1"):
            outer.compose(inner)
    else:
        assert (outer @ inner).offsets() == apparent.offsets() == pointwise


def test_composition_follows_cute():
    """Worked examples of the CuTe documentation."""
    assert str(Layout((6, 2), (8, 2)) @ Layout((4, 3), (3, 1))) == "((2,2),3):((24,2),8)"
    assert str(Layout(20, 2) @ Layout((5, 4), (4, 1))) == "(5,4):(8,2)"
    assert str(Layout((10, 2), (16, 4)) @ Layout((5, 4), (1, 5))) == "(5,(2,2)):(16,(80,4))"
    assert str(Layout((4, 6, 8, 10), (2, 3, 5, 7)) @ Layout(6, 12)) == "(2,3):(9,5)"


def test_composition_by_mode_selects_a_block():
    """A tuple composes mode by mode and leaves the remaining modes alone."""
    layout = Layout((12, (4, 8), 3), (59, (13, 1), 7))
    block = layout @ (Layout(3, 4), Layout(8, 2))
    assert str(block) == "(3,(2,4),3):(236,(26,1),7)"
    assert all(block(i, j, k) == layout(4 * i, 2 * j, k) for i in range(3) for j in range(8) for k in range(3))


def test_apparent_violation_inside_one_mode_is_accepted():
    """A stride of 3 divides nothing in (4,2):(3,12) or 8:3, but 0, 3, 6 never leave the coalesced mode."""
    outer = Layout((4, 2, 8), (3, 12, 97))
    assert outer @ Layout(3, 3) == Layout(3, 9)


@pytest.mark.parametrize(
    ("outer", "inner", "message"),
    [
        (
            Layout((4, 2, 8), (3, 15, 97)),
            Layout(3, 3),
            r"3:3 across mode 0 \(4:3\) of \(4,2,8\):\(3,15,97\): stride 3 neither divides the extent 4 nor is a "
            r"multiple of it \(nearest legal strides there: 2 or 4\)",
        ),
        (
            Layout((6, 4), (1, 10)),
            Layout(3, 8),
            r"stride 8 neither divides the extent 6 nor is a multiple of it \(nearest legal strides there: 6 or 12\)",
        ),
        (
            Layout((4, 6), (1, 10)),
            Layout(6, 1),
            r"each pass over the mode takes 4 indices, which does not divide the 6 wanted .*: 4 or 8\)",
        ),
        (Layout(8, 2), Layout(4, 3), r"4:3 reaches index 9 of 8:2, whose last index is 7"),
        (
            Layout((8, 8), (3, 97)),
            Layout((3, 3), (3, 1)),
            r"together, the modes of \(3,3\):\(3,1\) reach index 8 in mode 0 \(8:3\) .* carries into mode 1",
        ),
        (Layout((4, 4)), (2, 2, 2), r"3 tilers were given for the 2 modes of \(4,4\):\(1,4\)"),
        (Layout((4, 4)), (2, 5), r"mode 1 of \(4,4\):\(1,4\): compose: 5:1 reaches index 4 of 4:4"),
    ],
)
def test_refusals_of_composition_explain_themselves(outer, inner, message):
    """The error names the mode, the divisibility that is violated, and the nearest legal values."""
    with pytest.raises(LayoutError, match=message):
        outer.compose(inner)


@given(tidy_layouts(), st.integers(1, 200))
def test_complement_fills_the_codomain_once(layout, codomain):
    """Layout and complement add up to every offset exactly once, over whole periods, and the codomain is covered."""
    rest = layout.complement(codomain)
    total = sorted(a + b for a in layout.filter().offsets() for b in rest.offsets())
    assert total == list(range(len(total)))
    assert len(total) >= codomain
    period = max((m.shape * m.stride for m in layout.leaves if m.shape > 1), default=1)
    assert len(total) == -(-codomain // period) * period


@given(tidy_layouts(), st.integers(1, 200))
def test_complement_is_disjoint_and_ordered(layout, codomain):
    """The complement shares only offset 0 with the layout, and its offsets ascend."""
    rest = layout.complement(codomain).offsets()
    assert set(rest) & set(layout.offsets()) == {0}
    assert list(rest) == sorted(set(rest))


@given(layouts(leaves=3))
def test_complement_refuses_exactly_what_has_no_ascending_complement(layout):
    """Where it is refused, sorting by stride shows a mode whose stride is no multiple of what lies below."""
    modes = sorted(m for m in layout.leaves if m.shape > 1 and m.stride > 0)
    modes.sort(key=lambda m: m.stride)
    tidy = all(b.stride % (a.shape * a.stride) == 0 for a, b in itertools.pairwise(modes))
    assert (tried(layout.complement) is not None) == tidy


def test_complement_follows_cute():
    """Worked examples of the CuTe documentation, and the default codomain."""
    examples = {
        (4, 1): "6:4",
        (6, 4): "4:1",
        ((4, 6), (1, 4)): "1:0",
        (4, 2): "(2,3):(1,8)",
        ((2, 4), (1, 6)): "3:2",
        ((2, 2), (1, 6)): "(3,2):(2,12)",
    }
    for (shape, stride), expected in examples.items():
        assert str(Layout(shape, stride).complement(24)) == expected
    assert str(Layout((2, 3), (1, 4)).complement()) == "2:2"


def test_refusals_of_complement_explain_themselves():
    """The error names the mode, what lies below it and the nearest legal strides; a bad codomain is refused."""
    with pytest.raises(LayoutError, match=r"stride of mode 3:5 is not a multiple of 4, .* legal strides: 4 or 8\)"):
        Layout((4, 3), (1, 5)).complement(24)
    with pytest.raises(LayoutError, match=r"codomain is 0; the smallest legal value is 1"):
        Layout(4).complement(0)


@given(layouts(strides=st.integers(1, 20)), st.data())
def test_division_by_size_is_a_loop_over_blocks(layout, data):
    """Dividing by n puts index t + n*r at coordinate (t, r), wherever that division exists."""
    tile = data.draw(st.sampled_from([d for d in range(1, layout.size + 1) if layout.size % d == 0]))
    divided = tried(lambda: layout.logical_divide(tile))
    assume(divided is not None)
    for r in range(layout.size // tile):
        assert [divided(t, r) for t in range(tile)] == [layout(t + tile * r) for t in range(tile)]


@given(layouts(), tidy_layouts(leaves=3))
def test_division_is_composition_with_tiler_and_complement(layout, tiler):
    """Division splits every index once: tile offsets plus rest offsets are all of the layout's offsets."""
    divided = tried(lambda: layout.logical_divide(tiler))
    assume(divided is not None)
    rest = tiler.complement(layout.size)
    assert divided[0].offsets() == tuple(layout(i) for i in tiler.offsets())
    assert divided[1].offsets() == tuple(layout(i) for i in rest.offsets())
    if tiler.filter().size == tiler.size:
        assert sorted(divided.offsets()) == sorted(layout.offsets())


@given(st.lists(st.tuples(extents, extents), min_size=1, max_size=3), st.booleans())
def test_divisions_by_mode_agree(blocks, row_major):
    """logical, zipped and tiled divide reach the same element for the same tile and place, in their own nesting."""
    shape = tuple(t * r for t, r in blocks)
    tile = tuple(t for t, _ in blocks)
    layout = Layout.row_major(shape) if row_major else Layout.col_major(shape)
    logical, zipped, tiled = layout.logical_divide(tile), layout.zipped_divide(tile), layout.tiled_divide(tile)
    assert zipped.rank == 2
    assert tiled.rank == 1 + len(blocks)
    for where in itertools.islice(itertools.product(*(itertools.product(range(t), range(r)) for t, r in blocks)), 500):
        inside, outside = tuple(w[0] for w in where), tuple(w[1] for w in where)
        element = layout(tuple(w[0] + t * w[1] for w, t in zip(where, tile, strict=True)))
        assert logical(where) == element
        assert zipped(inside, outside) == element
        assert tiled((inside, *outside)) == element


def test_divisions_follow_cute():
    """Worked examples of the CuTe documentation: 1-D with a strided tiler, and 9 x 32 by two tilers."""
    assert str(Layout((4, 2, 3), (2, 1, 8)).logical_divide(Layout(4, 2))) == "((2,2),(2,3)):((4,1),(2,8))"
    layout = Layout((9, (4, 8)), (59, (13, 1)))
    tiler = (Layout(3, 3), Layout((2, 4), (1, 8)))
    assert str(layout.logical_divide(tiler)) == "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"
    assert str(layout.zipped_divide(tiler)) == "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"
    assert str(layout.tiled_divide(tiler)) == "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"


def test_division_leaves_further_modes_to_the_rest():
    """A tiler for the leading modes puts the others behind the tile counts, and nests as deep as it is written."""
    layout = Layout.row_major(8, (4, 6), 3)
    assert layout.zipped_divide((4, (2, 3))).shape == ((4, (2, 3)), (2, (2, 2), 3))
    assert layout.zipped_divide(4) == layout.logical_divide(4)


@pytest.mark.parametrize(
    ("tiler", "message"),
    [
        (7, r"divide: 7:1 does not divide .* of size 96 \(nearest tile sizes that do: 6 or 8\)"),
        (Layout(5, 2), r"5:2 does not divide .* \(its size must be a multiple of 10, the tiler's period\)"),
        (
            (3, 12),
            r"mode 0 of \(8,12\):\(12,1\): divide: 3:1 does not divide .* \(nearest tile sizes that do: 2 or 4\)",
        ),
        (0, r"tiler holds 0; the smallest legal value is 1"),
    ],
)
def test_refusals_of_division_explain_themselves(tiler, message):
    """The error names the mode, the tiler and sizes that divide."""
    with pytest.raises(LayoutError, match=message):
        Layout.row_major(8, 12).logical_divide(tiler)


@given(tidy_layouts(leaves=3), layouts(leaves=2, strides=st.sampled_from([1, 2, 3, 4])))
def test_product_is_the_layout_and_its_disjoint_copies(block, copies):
    """Mode 0 is the block; mode 1 places copies by the complement, disjoint unless `copies` repeats itself."""
    product = tried(lambda: block.logical_product(copies))
    assume(product is not None)
    assert product[0] == block
    free = block.complement(block.size * copies.cosize)
    assert product[1].offsets() == tuple(free(i) for i in copies.offsets())
    if len(set(block.offsets())) == block.size and len(set(copies.offsets())) == copies.size:
        assert len(set(product.offsets())) == product.size


@given(compact_layouts(leaves=3), compact_layouts(leaves=3))
def test_product_of_compact_layouts_always_exists(block, copies):
    """A compact block over a compact grid is compact, and copy c lies block.size * copies(c) further on."""
    product = block.logical_product(copies)
    assert sorted(product.offsets()) == list(range(block.size * copies.size))
    assert all(product(0, c) == block.size * copies(c) for c in range(copies.size))


@given(st.tuples(extents, extents), st.tuples(extents, extents), st.booleans(), st.booleans())
def test_blocked_and_raked_products_differ_only_in_the_order_of_coordinates(block_shape, grid_shape, row_a, row_b):
    """Blocked: element i of block g along a mode is i + extent*g; raked: g + count*i."""
    block = Layout.row_major(*block_shape) if row_a else Layout.col_major(*block_shape)
    grid = Layout.row_major(*grid_shape) if row_b else Layout.col_major(*grid_shape)
    blocked, raked = block.blocked_product(grid), block.raked_product(grid)
    for i, j in itertools.product(*map(range, block_shape)):
        for g, h in itertools.product(*map(range, grid_shape)):
            expected = block(i, j) + block.size * grid(g, h)
            assert blocked(i + block_shape[0] * g, j + block_shape[1] * h) == expected
            assert raked(g + grid_shape[0] * i, h + grid_shape[1] * j) == expected


def test_products_follow_cute():
    """Worked examples of the CuTe documentation, and operands of different rank."""
    assert str(Layout((2, 2), (4, 1)).logical_product(Layout(6, 1))) == "((2,2),(2,3)):((4,1),(2,8))"
    assert str(Layout((2, 2), (4, 1)).logical_product(Layout((4, 2), (2, 1)))) == "((2,2),(4,2)):((4,1),(8,2))"
    assert Layout.col_major(2, 2).logical_product((3, 4)).shape == ((2, 3), (2, (2, 2)))
    assert Layout(4).blocked_product(Layout((2, 3))).shape == ((4, 2), (1, 3))


@given(layouts())
def test_right_inverse_inverts_from_the_right(layout):
    """layout(R(i)) == i for every i of R; and R is as long as the offsets from 0 up allow with whole modes."""
    inverse = layout.right_inverse()
    assert [layout(i) for i in inverse.offsets()] == list(range(inverse.size))


@given(compact_layouts())
def test_inverses_of_a_bijection_are_whole(layout):
    """For a bijection both inverses are the same function, of full size."""
    right, left = layout.right_inverse(), layout.left_inverse()
    assert right.size == layout.size
    assert right.offsets() == left.offsets()


@given(tidy_layouts())
def test_left_inverse_inverts_from_the_left(layout):
    """L(layout(i)) == i for every i of a layout with gaps that are modes."""
    inverse = layout.left_inverse()
    assert [inverse(offset) for offset in layout.offsets()] == list(range(layout.size))


def test_inverses_follow_cute():
    """Worked examples, and the shortest right inverse where offset 1 is never reached."""
    assert str(Layout((4, 8), (1, 4)).right_inverse()) == "32:1"
    assert str(Layout((4, 8), (8, 1)).right_inverse()) == "(8,4):(4,1)"
    assert str(Layout((2, 3, 5), (2, 1, 100)).right_inverse()) == "3:2"
    assert str(Layout((2, 2, 3), (1, 1, 2)).right_inverse()) == "(2,3):(1,4)"
    assert str(Layout(4, 2).right_inverse()) == "1:0"


def test_left_inverse_refuses_shared_offsets():
    """A broadcast mode has no left inverse, and the error names it."""
    with pytest.raises(LayoutError, match=r"mode 3:0 gives 3 indices the same offset"):
        Layout((4, 3), (1, 0)).left_inverse()


@given(st.integers(1, 200), st.integers(1, 220))
def test_nearest_divisors_are_the_nearest(number, wanted):
    """The hint in an error names the divisors directly below and above."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below, above = [d for d in divisors if d < wanted], [d for d in divisors if d > wanted]
    assert nearest_divisors(number, wanted) == " or ".join(str(d) for d in below[-1:] + above[:1])


@given(layouts())
def test_results_nest_like_shapes(layout):
    """Shape and stride stay congruent through every operation that reshapes."""
    for result in (layout.coalesce(), layout.flatten(), layout.filter(), layout.right_inverse(), layout @ layout.size):
        assert congruent(result.shape, result.stride)
        assert len(flat(result.shape)) == len(result.leaves)
    assert coalesced([Mode(1, 7)]) == [Mode(1, 0)]
