"""Python epilogues of convolutions against NumPy: operands and results of every place, by every way to load images."""

from __future__ import annotations

import secrets
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.conv2d.convolutions import convolved
from tilekit.epilogue import batch, column, column_max, column_min, column_sum, maximum, row, row_max, row_min, row_sum
from tilekit.errors import TilekitError
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.matmul.picker import candidates
from tilekit.runtime.assembler import assemble
from tilekit.targets import target as target_named

BF16 = ml_dtypes.bfloat16
TARGETS = (
    *("sm_90a", "sm_100a", "sm_80"),
    *(pytest.param(chip, marks=pytest.mark.breadth) for chip in ("sm_89", "sm_120a")),
    pytest.param("cuda", marks=pytest.mark.gpu),
)
USUAL: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}

CALLS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "an engine over images": (
        (2, 9, 8, 64),
        (40, 3, 3, 64),
        {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    ),
    "and over filters": ((1, 9, 8, 72), (24, 3, 2, 72), {"padding": (1, 1)}),
    "groups": ((2, 9, 8, 32), (48, 3, 3, 16), {"padding": (1, 1), "groups": 2}),
    "groups of few channels": ((2, 6, 5, 20), (40, 3, 3, 4), {"padding": (1, 1), "groups": 5}),
    "groups of one filter": ((2, 9, 8, 4), (4, 3, 3, 1), {"padding": (1, 1), "groups": 4}),
    "a stem by lines": ((2, 15, 14, 3), (24, 7, 7, 3), {"stride": (2, 2), "padding": (3, 3)}),
    "a stem by elements": ((2, 15, 13, 3), (20, 7, 7, 3), {"stride": (2, 2), "padding": (3, 3)}),
    "a product": ((2, 9, 15, 64), (40, 1, 1, 64), {}),
    "a product with a stride": ((2, 7, 9, 64), (40, 1, 1, 64), {"stride": (2, 2)}),
    "one filter": ((2, 5, 5, 16), (1, 3, 3, 16), {}),
    "one filter of a product": ((1, 9, 4, 24), (1, 1, 1, 24), {}),
    "one pixel": ((1, 1, 1, 32), (8, 1, 1, 32), {"padding": (1, 1)}),
}
"""Images, filters, and how these go over those: every loader, and what lies at the edges of places."""


@tilekit.epilogue
def everything(x, like, other, filters, pixels, number):  # type: ignore[no-untyped-def]
    """All places of operands, coordinates, an array of another type, and all totals: exact on whole numbers."""
    y = x * like + other * filters - pixels + (row(x) - column(x) + 2 * batch(x))
    return (
        maximum(y, number),
        row_sum(y),
        y.astype("f32"),
        column_sum(y),
        row_max(y),
        column_max(y),
        row_min(y),
        column_min(y),
    )


@tilekit.epilogue
def statistics(x, bias):  # type: ignore[no-untyped-def]
    """What a batch norm asks of a convolution."""
    y = x + bias
    return y, column_sum(y), column_sum(y * y)


@tilekit.epilogue
def summed(x):  # type: ignore[no-untyped-def]
    """A total of each kind, and a further array."""
    return x, x.astype("f32"), row_sum(x), column_sum(x)


def whole(rng: np.random.Generator, *shape: int, dtype: Any = np.float16) -> Any:
    """Small whole numbers, of which products and sums are exact."""
    return rng.integers(-2, 3, shape).astype(dtype)


def by_groups(array: Any, groups: int) -> Any:
    """Pixels by filters, of each group."""
    pixels = array.reshape(-1, groups, array.shape[3] // groups)
    return pixels[:, 0] if groups == 1 else pixels.swapaxes(0, 1)


def references(call: Any, product: Any, groups: int, dtype: Any) -> list[Any]:
    """What the call is to return: `reference` of pixels by filters, each result in its caller's shape and type."""
    *pixels, filters = product.shape
    operands = []
    for operand in call.operands:
        given: Any = np.asarray(operand)
        if given.size == 1:
            given = given.reshape(())
        elif given.shape == product.shape:
            given = by_groups(given, groups)
        elif given.shape == (*pixels, 1):
            given = given.reshape(-1, 1)
        else:
            given = given.reshape(groups, 1, filters // groups) if groups > 1 else given.reshape(filters)
        operands.append(given if isinstance(operand, np.ndarray) else operand)
    found, shaped = call.function.reference(by_groups(product, groups), *operands), []
    for (kind, index), values in zip(call.graph.order, found, strict=True):
        if kind == "output":
            turned = values if groups == 1 else values.swapaxes(0, 1)
            own = call.graph.dtypes[index]
            shaped.append(turned.reshape(product.shape).astype(dtype if own is None else own.numpy))
        elif call.graph.totals[index].along == "row":
            shaped.append(values.reshape(*((groups,) if groups > 1 else ()), *pixels).astype(np.float32))
        else:
            shaped.append(values.reshape(filters).astype(np.float32))
    return shaped


def operands_of(rng: np.random.Generator, extents: tuple[int, ...]) -> tuple[Any, ...]:
    """What `everything` takes for a result."""
    filters = whole(rng, *((extents[3],) if rng.random() < 0.5 else (1, 1, 1, extents[3])), dtype="f4")
    like, other = whole(rng, *extents), whole(rng, *extents, dtype="f4")
    return like, other, filters, whole(rng, *extents[:3], 1, dtype=BF16), 1.0


def check_everything(target: str, x: Any, w: Any, how: dict[str, Any], seed: int, **more: Any) -> None:
    """One convolution, with results that have been NaN or that the call makes, bit by bit."""
    rng, ways = np.random.default_rng(seed), USUAL | how
    images, filters = whole(rng, *x), whole(rng, *w)
    product = convolved(images, filters, **ways)
    call = everything(*operands_of(rng, product.shape))
    wanted = references(call, product, ways["groups"], np.float16)
    out = tuple(np.full(one.shape, np.nan, one.dtype) for one in wanted) if seed % 2 else None
    found = tilekit.conv2d(images, filters, epilogue=call, out=out, target=target, **how, **more)
    assert out is None or all(one is given for one, given in zip(found, out, strict=True))
    for one, expected in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(one, expected, err_msg=f"{target} {x} {w} {how} {seed}")


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_place_and_total(target: str, name: str) -> None:
    """Of each way to load images, whatever the order of results is."""
    check_everything(target, *CALLS[name], seed=list(CALLS).index(name))


def check_drawn(target: str, seed: int) -> None:
    """Images, filters and ways at random."""
    rng = np.random.default_rng(seed)
    while True:
        groups = int(rng.choice((1, 1, 1, 2, 3, 8)))
        channels = int(rng.choice((1, 2, 3, 4, 8, 16, 24, 32, 64, 72)))
        taps = [(1, 1), (1, 1), (3, 3), (2, 3), (5, 1), (7, 7)][int(rng.integers(6))]
        x = int(rng.integers(1, 4)), *(int(n) for n in rng.integers(1, 16, 2)), channels * groups
        w = groups * int(rng.choice((1, 3, 8, 16, 40))), *taps, channels
        stride, padding, dilation = (
            tuple(int(n) for n in rng.choice(of, 2)) for of in ((1, 1, 2, 3), (0, 1, 3), (1, 1, 2))
        )
        reach = [(tap - 1) * apart + 1 for tap, apart in zip(taps, dilation, strict=True)]
        if all(n + 2 * pad >= end for n, pad, end in zip(x[1:3], padding, reach, strict=True)):
            how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
            return check_everything(target, x, w, how, seed)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", [5, None], ids=["5", "fresh"])
@pytest.mark.parametrize("target", TARGETS)
def test_drawn_convolutions(target: str, seed: int | None) -> None:
    """Two of them, one with a seed of its own."""
    check_drawn(target, secrets.randbits(32) if seed is None else seed)


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_80", "sm_89", "sm_120a"])
def test_more_drawn_convolutions(target: str, seed: int) -> None:
    """More of the same."""
    check_drawn(target, seed)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", ["an engine over images", "groups", "a stem by lines"])
@pytest.mark.parametrize("target", TARGETS)
def test_totals_beside_float64(target: str, name: str) -> None:
    """Of numbers whose sums are not exact: as near as f32 is, and the same bits under every interleaving."""
    x, w, how = CALLS[name]
    rng, ways = np.random.default_rng(1), USUAL | how
    images, filters = (rng.standard_normal(shape).astype(BF16) for shape in (x, w))
    bias = rng.standard_normal(w[0]).astype(np.float32)
    call, chip = statistics(bias), "sm_90a" if target == "cuda" else target
    kernel: Any = tilekit.conv2d_kernel_for(images, filters, epilogue=call, target=chip, **how)
    found = []
    for seed in range(2):
        options: dict[str, Any] = {"device": "cuda"} if target == "cuda" else {"seed": seed}
        found.append(kernel.bind(images, filters, epilogue=call, **how, **options)())
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))
    y = convolved(images, filters, **ways) + bias
    np.testing.assert_allclose(found[0][0].astype("f8"), y, rtol=1e-2, atol=1e-2)
    for one, expected in zip(found[0][1:], (y.sum((0, 1, 2)), (y * y).sum((0, 1, 2))), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-3 * abs(y).max())


def test_8_bits_and_results_in_place() -> None:
    """fp8 images; a residual in the result's own memory; arrays that are parts of wider pixels, which stay."""
    rng = np.random.default_rng(3)
    e4m3 = ml_dtypes.float8_e4m3fn
    images, filters = whole(rng, 2, 6, 5, 16, dtype=e4m3), whole(rng, 24, 3, 3, 16, dtype=e4m3)

    @tilekit.epilogue
    def added(x, residual):  # type: ignore[no-untyped-def]
        y = x + residual
        return y, y.astype("f32"), column_sum(y), row_max(y)

    for target in ("sm_90a", "sm_100a", "sm_89"):
        out, wide = whole(rng, 2, 4, 3, 24, dtype=BF16), np.full((2, 4, 3, 40), 7, np.float32)
        call = added(out)
        wanted = references(call, convolved(images, filters, **USUAL), 1, BF16)
        totals = np.full(24, np.nan, np.float32), np.full((2, 4, 3), np.nan, np.float32)
        given = out, wide[..., 8:32], *totals
        found = tilekit.conv2d(images, filters, epilogue=call, out=given, target=target)
        for one, array, expected in zip(found, given, wanted, strict=True):
            assert one is array
            np.testing.assert_array_equal(one.astype("f8"), expected.astype("f8"))
        assert (wide[..., :8] == 7).all()
        assert (wide[..., 32:] == 7).all()


def test_one_array_for_the_result_alone() -> None:
    """The others are made; a function without operands need not be called."""
    images, filters = np.ones((1, 5, 5, 16), np.float16), np.ones((8, 3, 3, 16), np.float16)
    out = np.empty((1, 3, 3, 8), np.float16)
    for given in (out, (out, *(np.empty(shape, np.float32) for shape in ((1, 3, 3, 8), (1, 3, 3), (8,))))):
        found = tilekit.conv2d(images, filters, out=given, epilogue=summed)
        assert found[0] is out
        assert [one.shape for one in found] == [(1, 3, 3, 8), (1, 3, 3, 8), (1, 3, 3), (8,)]
        assert all((one == value).all() for one, value in zip(found, (144, 144, 1152, 1296), strict=True))


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", ["an engine over images", "groups", "a stem by lines", "a product"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_80"])
def test_kernels_bind_several_results(target: str, name: str) -> None:
    """What `conv2d_kernel_for` gives takes `out=` as the call does, and is launched again on other images."""
    x, w, how = CALLS[name]
    rng, ways = np.random.default_rng(4), USUAL | how
    images, filters = whole(rng, *x), whole(rng, *w)
    product = convolved(images, filters, **ways)
    call = everything(*operands_of(rng, product.shape))
    kernel: Any = tilekit.conv2d_kernel_for(images, filters, epilogue=call, target=target, **how)
    out = tuple(np.full(one.shape, np.nan, one.dtype) for one in references(call, product, ways["groups"], np.float16))
    plan = kernel.bind(images, filters, out, epilogue=call, **how)
    for _ in range(2):
        assert plan() == out
        wanted = references(call, convolved(images, filters, **ways), ways["groups"], np.float16)
        for one, expected in zip(out, wanted, strict=True):
            np.testing.assert_array_equal(one, expected)
        images[...] = whole(rng, *x)
    with pytest.raises(TilekitError, match=r"was built for .*TK-MM-016"):
        kernel.bind(images, filters, epilogue=summed, **how)


class Exchanged:
    """An array of a library that is known by its exchange alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return Exchanged

    @staticmethod
    def from_dlpack(array: Any) -> Exchanged:
        return Exchanged(np.from_dlpack(array))


def test_results_of_another_library() -> None:
    """All of them are handed over to the library that the operands come from."""
    x, w = (Exchanged(np.ones(shape, np.float16)) for shape in ((1, 5, 5, 16), (8, 3, 3, 16)))
    found = tilekit.conv2d(x, w, epilogue=summed)
    assert all(type(one) is Exchanged for one in found)
    assert [one.array.shape for one in found] == [(1, 3, 3, 8), (1, 3, 3, 8), (1, 3, 3), (8,)]


PIXELS, FURTHER, ROWS, COLUMNS = (
    np.zeros(shape, kind)
    for shape, kind in (((2, 4, 3, 24), "f2"), ((2, 4, 3, 24), "f4"), ((2, 4, 3), "f4"), (24, "f4"))
)

WRONG_RESULTS: dict[str, tuple[Any, str]] = {
    "too few": ((PIXELS, FURTHER, ROWS), "out is a tuple of 3, and summed stores 4; nearest: a tuple of 4.*TK-EPI-004"),
    "too many": ((PIXELS, FURTHER, ROWS, COLUMNS, ROWS), "out is a tuple of 5, and summed stores 4.*TK-EPI-004"),
    "none": ((), "a tuple of 0.*one array.*TK-EPI-004"),
    "the result's shape": ((PIXELS[:1], FURTHER, ROWS, COLUMNS), r"out\[0\] is f16 of shape \(1, 4, 3, 24\)"),
    "a shape": (
        (PIXELS, FURTHER[:, :3], ROWS, COLUMNS),
        r"out\[1\] is f32 of shape \(2, 3, 3, 24\); the result is f32",
    ),
    "a rank": ((PIXELS, FURTHER[0], ROWS, COLUMNS), r"out\[1\] has shape \(4, 3, 24\): conv2d takes"),
    "a type": ((PIXELS, PIXELS + 1, ROWS, COLUMNS), r"out\[1\] is f16 of shape \(2, 4, 3, 24\); the result is f32"),
    "rows": ((PIXELS, FURTHER, ROWS.reshape(-1), COLUMNS), r"out\[2\] is f32 of shape \(24,\); .* \(2, 4, 3\)"),
    "a total's type": ((PIXELS, FURTHER, ROWS, PIXELS[0, 0, 0]), r"out\[3\] is f16 of shape \(24,\)"),
    "rows that lie apart": (
        (PIXELS, FURTHER, np.zeros((2, 4, 6), "f4")[..., ::2], COLUMNS),
        r"out\[2\] has strides \(24, 6, 2\).* nearest: an array in C order.*TK-EPI-004",
    ),
    "channels that lie apart": (
        (PIXELS, np.zeros((2, 4, 3, 48), "f4")[..., ::2], ROWS, COLUMNS),
        r"out\[1\] has strides .*TK-CONV-005",
    ),
    "an overlap": (
        (PIXELS, FURTHER, FURTHER.reshape(-1)[:24].reshape(2, 4, 3), COLUMNS),
        r"out\[2\] overlaps out\[1\]",
    ),
}
"""What may not be stored to, with words of the error, which has the argument as its caller knows it."""


@pytest.mark.parametrize("name", WRONG_RESULTS)
def test_results_that_do_not_fit(name: str) -> None:
    """Refused at the call, of a bound kernel too."""
    out, words = WRONG_RESULTS[name]
    images, filters = np.zeros((2, 6, 5, 16), np.float16), np.zeros((24, 3, 3, 16), np.float16)
    kernel: Any = tilekit.conv2d_kernel_for(images, filters, epilogue=summed)
    for call in (tilekit.conv2d, kernel.bind):
        with pytest.raises(TilekitError, match=words):
            call(images, filters, out=out, epilogue=summed)


def test_results_apart_from_what_is_read() -> None:
    """Images are not written; a tuple is for an epilogue alone."""
    images, filters = np.zeros((2, 6, 5, 16), np.float16), np.zeros((24, 1, 1, 16), np.float16)
    same = tilekit.epilogue(lambda x: (x, x))
    out = np.zeros((2, 6, 5, 16), np.float16)
    with pytest.raises(TilekitError, match=r"out\[1\] overlaps x in memory.*TK-ARRAY-009"):
        tilekit.conv2d(images, filters[:16], out=(out, images), epilogue=same)
    with pytest.raises(TilekitError, match=r"a tuple of 2.*one array.*TK-EPI-004"):
        tilekit.conv2d(images, filters[:16], out=(out, out))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_80", "sm_89", "sm_120a"])
def test_the_picker_has_configs_for_all(target: str) -> None:
    """Whichever way images are loaded, and all of them upright."""
    for x, w, how in CALLS.values():
        images, filters = np.zeros(x, BF16), np.zeros(w, BF16)
        spec = ConvArguments.parse(images, filters, epilogue=summed, target=target, **how).spec
        found = candidates(spec, target_named(target))
        assert found
        assert not any(config.swap_ab for config in found)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("sm_90a", "an engine over images"),
        ("sm_90a", "a stem by lines"),
        ("sm_100a", "groups"),
        ("sm_100a", "a stem by elements"),
        ("sm_80", "an engine over images"),
        ("sm_80", "a stem by lines"),
    ],
)
def test_machine_code_has_no_spills(target: str, name: str) -> None:
    """Of the config that a call of a layer's size takes (`assemble` raises where a register goes to memory)."""
    (_, *extents, channels), w, how = CALLS[name]
    images, filters = (
        np.zeros((8, *(4 * n for n in extents), channels), BF16),
        np.zeros((64 * how.get("groups", 1), *w[1:]), BF16),
    )
    kernel = tilekit.conv2d_kernel_for(images, filters, epilogue=summed, target=target, **how)
    used = assemble(kernel.assembly, target, kernel_name=kernel.name).resources
    assert (used.stack_bytes, used.spill_store_bytes) == (0, 0)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "given", [2, np.float16(2), np.array(2, "f4"), np.full((1, 1), 2, "f2"), np.full((1,) * 4, 2, "f4")]
)
def test_one_element(given: Any) -> None:
    """Of any shape that broadcasts, and of images of one filter, too; a whole number is one of Python's."""

    @tilekit.epilogue
    def scaled(x, by):  # type: ignore[no-untyped-def]
        return x * by

    for filters in (1, 8):
        x, w = np.ones((1, 5, 5, 16), np.float16), np.ones((filters, 3, 3, 16), np.float16)
        assert (tilekit.conv2d(x, w, epilogue=scaled(given)) == 288).all()

    @tilekit.epilogue
    def seeded(x, seed: int):  # type: ignore[no-untyped-def]
        return x * seed

    with pytest.raises(TilekitError, match=r"legal: a whole number .*: seed is annotated as int.*TK-EPI-004"):
        tilekit.conv2d(x, w, epilogue=seeded(np.array([2])))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_one_result(target: str, groups: int) -> None:
    """An array like the result and a value a filter, beside the plain convolution of the same chip."""
    rng = np.random.default_rng(13)
    x, w, like = whole(rng, 2, 9, 10, 16), whole(rng, 32, 3, 3, 16 // groups), whole(rng, 2, 9, 10, 32)
    filters = whole(rng, 32, dtype="f4")

    @tilekit.epilogue
    def scaled(x, like, filters, number):  # type: ignore[no-untyped-def]
        return (x + like * number) * filters

    plain = tilekit.conv2d(x, w, padding=1, groups=groups, target=target, out_dtype="f32")
    result = tilekit.conv2d(x, w, padding=1, groups=groups, epilogue=scaled(like, filters, 2.0), target=target)
    expected = (plain + like.astype("f4") * 2) * filters
    assert (result == expected.astype(np.float16)).all()
