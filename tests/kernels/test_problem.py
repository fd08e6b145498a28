"""Reading a matmul off its arrays: majors, pitches, batches, and what no copy engine can read."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.arrays import view_of
from tilekit.errors import ArgumentError
from tilekit.kernels.problem import MatmulProblem, matrix_view, output_matrix, read_problem, store_kind
from tilekit.tiles.call import Load, Matrix

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def aligned(shape: tuple[int, ...], dtype: Any = BF16, offset: int = 0) -> np.ndarray:
    """An array in C order whose address is `offset` bytes past a multiple of 256."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    raw = np.zeros(count * dtype.itemsize + 512, np.uint8)
    start = -raw.ctypes.data % 256 + offset
    return raw[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


def read(a: np.ndarray, b: np.ndarray) -> MatmulProblem:
    """The problem of two arrays."""
    return read_problem(matrix_view(a, "a"), matrix_view(b, "b"))


def facts(matrix: Matrix) -> tuple[str, tuple[int, int], int, int, int]:
    """Major, extents, pitch, batch pitch and batches."""
    return matrix.major, matrix.extents, matrix.pitch, matrix.batch_pitch, matrix.batches


def test_c_order_is_k_major_times_n_major() -> None:
    """A (M, K) in C order has K contiguous, B (K, N) has N contiguous; a pitch is a row's bytes."""
    problem = read(aligned((48, 80)), aligned((80, 24)))
    assert (problem.m, problem.n, problem.k, problem.batches, problem.batched) == (48, 24, 80, 1, False)
    assert facts(problem.a) == ("k", (80, 48), 160, 0, 1)
    assert facts(problem.b) == ("mn", (24, 80), 48, 0, 1)
    assert problem.out_shape == (48, 24)
    assert problem.flops == 2 * 48 * 24 * 80


def test_transposes_turn_the_major() -> None:
    """The `.T` of each operand is read in place, with the other dimension contiguous."""
    problem = read(aligned((80, 48)).T, aligned((24, 80)).T)
    assert facts(problem.a) == ("mn", (48, 80), 96, 0, 1)
    assert facts(problem.b) == ("k", (80, 24), 160, 0, 1)


def test_padded_rows_and_parts_of_larger_arrays() -> None:
    """A slice of columns keeps the pitch of the array it is cut from."""
    problem = read(aligned((48, 96))[:, 8:88], aligned((24, 128))[:, 16:96].T)
    assert facts(problem.a) == ("k", (80, 48), 192, 0, 1)
    assert facts(problem.b) == ("k", (80, 24), 256, 0, 1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 16, 16), (16, 1, 16), (16, 16, 1), (1, 1, 16), (1, 1, 1), (8, 1, 1)])
def test_extents_of_one(m: int, n: int, k: int, order: str) -> None:
    """A dimension of one element has no stride that matters: any array is read, with a legal pitch."""
    a, b = aligned((m, k)), aligned((k, n))
    if order == "F":
        a, b = aligned((k, m)).T, aligned((n, k)).T
    problem = read(a, b)
    for matrix, rows in ((problem.a, m), (problem.b, n)):
        assert matrix.pitch % 16 == 0
        assert matrix.pitch >= 16
        assert sorted(matrix.extents) == sorted((rows, k))


def test_batches() -> None:
    """Equal batches, one shared by all as a matrix, as a batch of one, and as a broadcast view: all mean one matrix."""
    many, other = aligned((5, 16, 32)), aligned((5, 32, 8))
    problem = read(many, other)
    assert (problem.batches, problem.batched, problem.out_shape) == (5, True, (5, 16, 8))
    assert facts(problem.a) == ("k", (32, 16), 64, 1024, 5)
    for one in (other[0], other[:1], np.broadcast_to(other[0], (5, 32, 8))):
        problem = read(many, one)
        assert (problem.batches, problem.batched) == (5, True)
        assert facts(problem.b) == ("mn", (8, 32), 16, 0, 1)
    assert read(many[:1], other[:1]).out_shape == (1, 16, 8)


def test_broadcast_operands_are_multiplied_in_place() -> None:
    """A batch that NumPy broadcasts from one matrix, whose stride is zero, gives every batch index the same operand."""
    rng = np.random.default_rng(3)
    a = np.broadcast_to(rng.integers(-3, 4, (32, 64)).astype(np.float16), (3, 32, 64))
    b = rng.integers(-3, 4, (3, 64, 16)).astype(np.float16)
    np.testing.assert_array_equal(tilekit.matmul(a, b), a.astype(np.float32) @ b.astype(np.float32))


def test_empty_operands() -> None:
    """Zero rows, columns, depth and batches are problems like others; nothing of them is read."""
    assert read(aligned((0, 16)), aligned((16, 8))).out_shape == (0, 8)
    assert read(aligned((8, 16)), aligned((16, 0))).out_shape == (8, 0)
    problem = read(aligned((8, 0)), aligned((0, 24)))
    assert (problem.k, problem.out_shape) == (0, (8, 24))
    assert read(aligned((0, 8, 16)), aligned((16, 8))).out_shape == (0, 8, 8)


def test_fp8_columns_stay_k_major() -> None:
    """An fp8 operand of one row or column is read along K, the only way fp8 can be multiplied."""
    problem = read(aligned((16, 32), E4M3), aligned((1, 32), E4M3).T)
    assert problem.b.major == "k"
    assert read(aligned((1, 32), E4M3), aligned((16, 32), E4M3).T).a.major == "k"


@pytest.mark.parametrize(
    ("a", "b", "code", "words"),
    [
        (aligned((16,)), aligned((16, 8)), "TK-MM-010", ["a has shape (16,)", "a[None, :]"]),
        (aligned((16, 8)), aligned((1, 2, 8, 8)), "TK-MM-010", ["b has shape (1, 2, 8, 8)", "reshape the leading"]),
        (aligned((16, 8)), aligned((16, 24)), "TK-MM-011", ["K=8 columns", "K=16 rows"]),
        (aligned((16, 8)), aligned((24, 8)), "TK-MM-011", ["b looks transposed: pass b.T"]),
        (aligned((3, 16, 8)), aligned((2, 8, 8)), "TK-MM-012", ["3 and 2"]),
        (aligned((16, 16))[:, ::2], aligned((8, 8)), "TK-MM-013", ["a, bf16", "strides (16, 2)", "must be contiguous"]),
        (aligned((16, 8))[::-1], aligned((8, 8)), "TK-MM-013", ["strides (-8, 1)", "run backwards"]),
        (aligned((3, 16, 8))[::-1], aligned((8, 8)), "TK-MM-013", ["strides (-128, 8, 1)", "a.contiguous()"]),
    ],
)  # fmt: skip
def test_what_cannot_be_read(a: np.ndarray, b: np.ndarray, code: str, words: list[str]) -> None:
    """Each refusal names the argument, what it is, and a way out."""
    with pytest.raises(ArgumentError) as caught:
        read(a, b)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("array", "load"),
    [
        (aligned((16, 8)), "tma"),
        (aligned((16, 9)), 2),
        (aligned((16, 10)), 4),
        (aligned((16, 12)), 8),
        (aligned((16, 8), offset=2), 2),
        (aligned((16, 8), offset=4), 4),
        (aligned((16, 8), offset=8), 8),
        (aligned((16, 32))[:, 1:9], 2),
        (aligned((3, 1, 4)), 8),
        (aligned((3, 2, 8 * 9))[:, :, :8], "tma"),
        (aligned((3, 17))[:, :16].reshape(3, 2, 8), 2),
        (aligned((16, 13), E4M3), 1),
        (aligned((16, 24), E4M3), 8),
        (np.broadcast_to(aligned((1, 8)), (16, 8)), 8),
        (aligned((16, 9)).T, 2),
        (aligned((16, 1)), "tma"),
        (aligned((16, 0)), "tma"),
    ],
)
def test_loads(array: np.ndarray, load: Load) -> None:
    """TMA needs address and pitches in multiples of 16 bytes; else what they are multiples of says how to copy."""
    k = array.shape[-1]
    assert read(array, aligned((8, k), array.dtype).T).a.load == load
    assert read(aligned((8, k), array.dtype), array.swapaxes(-1, -2)).b.load == load


def test_outputs() -> None:
    """N must be contiguous; the copy engine writes where address, pitches and row ends are multiples of 16 bytes."""
    whole = aligned((4, 16, 24))
    cases = {
        "tma": [whole, whole[0], whole[:, :, 8:16], whole[0, :1], whole[:, 0]],
        "direct": [
            whole[:, :, 1:9],
            whole[:, :, :10],
            aligned((16, 9)),
            aligned((4, 16, 8), offset=2),
            aligned((3, 3, 8), np.float32)[:, :, :3],
        ],
    }
    for kind, outputs in cases.items():
        for out in outputs:
            view = view_of(out, "out")
            assert store_kind(view.address, output_matrix(view)) == kind, out.shape
    with pytest.raises(ArgumentError, match="TK-MM-014") as caught:
        output_matrix(view_of(whole[0].T, "out"))
    assert "out.T = b.T @ a.T" in str(caught.value)
