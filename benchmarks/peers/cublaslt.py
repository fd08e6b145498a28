"""cuBLASLt, the quickest of the algorithms that its heuristic proposes, through the library that torch has loaded.

`torch.matmul` takes the first proposal; this peer asks for more and measures them, once a shape, as a program that
calls one shape often would. Functions and constants: cublasLt.h, and the cuBLAS manual, section "Using the cuBLASLt
API".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import byref, c_int, c_int8, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import torch

from tilekit.bench.entrants import Entrant
from tilekit.bench.machine import Machine
from tilekit.bench.tuning import quickest

_PROPOSALS = 16
_WORKSPACE = 64 << 20

_COMPUTE_32F, _R_32F = 68, 0
_TYPES = {
    torch.float32: _R_32F,
    torch.float16: 2,
    torch.bfloat16: 14,
    torch.float8_e4m3fn: 28,
    torch.float8_e5m2: 29,
}
_TRANSA, _TRANSB, _A_SCALE, _B_SCALE, _FAST_ACCUM = 3, 4, 17, 18, 25
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE = 1


class Proposal(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``: an algorithm, and what it needs."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", ctypes.c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Stored:
    """A matrix as cuBLASLt sees it, by columns: what is stored, and whether the product wants its transpose."""

    rows: int
    columns: int
    pitch: int
    transposed: bool


def stored(matrix: Any) -> Stored:
    """Describe a row-major product's operand.

    The library computes ``out.T = b.T @ a.T`` by columns. A matrix whose rows are contiguous is, by columns, its own
    transpose, which is what that wants; one whose columns are contiguous must be transposed.
    """
    height, width = matrix.shape[-2:]
    down, across = matrix.stride()[-2:]
    if across == 1:
        return Stored(width, height, down, False)
    return Stored(height, width, across, True)


class _Library:
    """libcublasLt, with every failure an exception."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(f"libcublasLt.so.{str(torch.version.cuda).split('.')[0]}")
        self.handle = c_void_p()
        self("Create", byref(self.handle))
        self.workspace = torch.empty(_WORKSPACE, dtype=torch.uint8, device="cuda")
        self.one, self.alpha, self.beta = torch.ones((), device="cuda"), ctypes.c_float(1), ctypes.c_float(0)

    def __call__(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, f"cublasLt{function}")(*arguments)
        if status:
            raise RuntimeError(f"cublasLt{function}: status {status}")

    def version(self) -> int:
        get = self._library.cublasLtGetVersion
        get.restype = c_size_t
        return int(get())


@functools.cache
def _lt() -> _Library:
    return _Library()


class Plan:
    """The descriptors of one shape, the proposals for it, and the one that is taken."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, fast: bool) -> None:
        lt = _lt()
        batches = a.shape[0] if a.dim() == 3 else 1
        first, second = stored(b), stored(a)
        self.operation = c_void_p()
        lt("MatmulDescCreate", byref(self.operation), _COMPUTE_32F, _R_32F)
        self._set(_TRANSA, ctypes.c_int32(first.transposed))
        self._set(_TRANSB, ctypes.c_int32(second.transposed))
        if a.element_size() == 1:
            self._set(_FAST_ACCUM, c_int8(fast))
            self._set(_A_SCALE, c_void_p(lt.one.data_ptr()))
            self._set(_B_SCALE, c_void_p(lt.one.data_ptr()))
        self.layouts = [_layout(matrix, how, batches) for matrix, how in ((b, first), (a, second), (out, stored(out)))]
        self.proposals = self._ask()
        self.taken = self.proposals[0]

    def _set(self, attribute: int, value: Any) -> None:
        _lt()("MatmulDescSetAttribute", self.operation, attribute, byref(value), c_size_t(ctypes.sizeof(value)))

    def _ask(self) -> list[Proposal]:
        lt, preference, count = _lt(), c_void_p(), c_int()
        lt("MatmulPreferenceCreate", byref(preference))
        size = c_uint64(_WORKSPACE)
        lt("MatmulPreferenceSetAttribute", preference, _MAX_WORKSPACE, byref(size), c_size_t(8))
        found = (Proposal * _PROPOSALS)()
        first, second, result = self.layouts
        layouts = (first, second, result, result)
        lt(
            "MatmulAlgoGetHeuristic",
            lt.handle, self.operation, *layouts, preference, _PROPOSALS, found, byref(count),
        )  # fmt: skip
        lt("MatmulPreferenceDestroy", preference)
        good = [proposal for proposal in found[: count.value] if proposal.state == 0]
        if not good:
            raise RuntimeError("cuBLASLt proposes no algorithm")
        return good

    def run(self, proposal: Proposal, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """Enqueue ``out = a @ b`` by one of the proposals."""
        lt = _lt()
        first, second, result = self.layouts
        place = c_void_p(out.data_ptr())
        lt(
            "Matmul",
            lt.handle, self.operation,
            byref(lt.alpha), c_void_p(b.data_ptr()), first, c_void_p(a.data_ptr()), second,
            byref(lt.beta), place, result, place, result,
            byref(proposal, Proposal.algorithm.offset),
            c_void_p(lt.workspace.data_ptr()), c_size_t(_WORKSPACE),
            c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip


def _layout(matrix: torch.Tensor, how: Stored, batches: int) -> c_void_p:
    layout = c_void_p()
    extents = c_uint64(how.rows), c_uint64(how.columns), c_int64(how.pitch)
    _lt()("MatrixLayoutCreate", byref(layout), _TYPES[matrix.dtype], *extents)
    if batches > 1:
        for attribute, value in ((_BATCH_COUNT, ctypes.c_int32(batches)), (_BATCH_STRIDE, c_int64(matrix.stride(0)))):
            size = c_size_t(ctypes.sizeof(value))
            _lt()("MatrixLayoutSetAttribute", layout, attribute, byref(value), size)
    return layout


_plans: dict[tuple[Any, ...], Plan] = {}


def _key(*matrices: torch.Tensor) -> tuple[Any, ...]:
    return tuple((matrix.dtype, matrix.shape, matrix.stride()) for matrix in matrices)


def prepare(machine: Machine, sets: Sequence[tuple[torch.Tensor, ...]]) -> None:
    """Ask for proposals and take the quickest."""
    plan = Plan(*sets[0], fast=machine.accumulation == "fast")
    plan.taken = quickest(machine, plan.proposals, plan.run, sets)
    _plans[_key(*sets[0])] = plan


def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Enqueue ``out = a @ b`` on the current stream by the algorithm that :func:`prepare` took."""
    plan = _plans[_key(a, b, out)]
    plan.run(plan.taken, a, b, out)


ENTRANTS = [Entrant("cuBLASLt best", launch, prepare=prepare)]
ABOUT = {"cublasLt": str(_lt().version())}
