"""The grouped matmul among the families: groups of rows, each times a matrix of its own, in one launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from tilekit.errors import ArgumentError
from tilekit.kernels.family import Family, Selection, TunedConfigs
from tilekit.kernels.grouped.arguments import GroupedArguments
from tilekit.kernels.grouped.compiled import GroupedKernel
from tilekit.kernels.matmul.choices import MatmulChoices
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.family import build
from tilekit.kernels.matmul.legal import check_types
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.problem import MatmulProblem
from tilekit.kernels.resolve import gpu_name
from tilekit.targets import TARGETS, Target
from tilekit.tile_io.tma import TMA_ALIGNMENT


def select(
    arguments: GroupedArguments, tuned: TunedConfigs | None, kind: Callable[..., MatmulKernel] = GroupedKernel
) -> Selection:
    """The kernel with the config that the caller gave, tuning found or the model picks."""
    problem, target = arguments.problem, arguments.target
    check_types(arguments.a.dtype, arguments.b.dtype, whole=True)
    by_threads = platform(target).components.COPIES_GROUPS
    for operand in () if by_threads else (problem.a, problem.b):
        if operand.load != "tma" and operand.name == "a" and operand.major == "mn":
            raise ArgumentError(
                f"a is contiguous along M, where groups begin at multiples of {operand.load} bytes; the copy engine of "
                f"{target.name} needs multiples of 16: pass a with contiguous rows of K",
                code="TK-GROUP-003",
            )
        if operand.load != "tma" and not operand.pitch:
            raise ArgumentError(
                f"{operand.name}'s rows are 0 bytes apart: they share one place, and the copy engine needs rows apart; "
                f"pass a copy of {operand.name}",
                code="TK-GROUP-003",
            )
        if operand.load != "tma":
            raise ArgumentError(
                f"{operand.name}'s address and pitches (its rows are {operand.pitch} bytes apart) are multiples of "
                f"{operand.load} bytes only; the copy engine needs multiples of 16: pad the rows, and pass a view",
                code="TK-GROUP-003",
            )
    if arguments.store == "direct" and not by_threads:
        raise _unwritten(arguments)
    spec, config = arguments.spec, arguments.config
    groups = arguments.b.shape[0]
    if config is None and tuned is not None and arguments.a.device != "cpu":
        shape: dict[str, Any] = {"m": problem.m, "n": problem.n, "k": problem.k, "batches": 1, "groups": groups}
        config = tuned(spec, target, gpu_name(arguments.a.device), **shape, call=arguments)
    if config is None:
        config = _config(spec, target, problem, groups)
    return Selection(compiled(spec, config, target, kind), arguments)


def _unwritten(arguments: GroupedArguments) -> ArgumentError:
    """The error for an output that the copy engine cannot write, which does so in whole units."""
    out, chip, pitch = arguments.out, arguments.target.name, arguments.out_matrix.pitch
    n, unit = out.shape[-1], TMA_ALIGNMENT // out.dtype.bytes
    if n % unit:
        whole = -(-n // unit) * unit
        return ArgumentError(
            f"out, {out.dtype} of shape {out.shape}, has rows of N={n} elements: {chip}'s copy engine writes whole "
            f"{TMA_ALIGNMENT} bytes, so N must be a multiple of {unit}; nearest: {whole}, with columns of zeros in b",
            code="TK-GROUP-003",
        )
    return ArgumentError(
        f"out begins at address {out.address:#x}, and its rows are {pitch} bytes apart: {chip}'s copy engine writes "
        f"where both are multiples of {TMA_ALIGNMENT} bytes; nearest: no out, or a view of an array whose rows are "
        f"{-(-pitch // TMA_ALIGNMENT) * TMA_ALIGNMENT} bytes apart",
        code="TK-GROUP-003",
    )


def _config(spec: MatmulSpec, chip: Target, problem: MatmulProblem, groups: int) -> KernelConfig:
    """What the model picks for groups of so many rows in all."""
    return _pick(spec, chip, m=problem.m, n=problem.n, k=problem.k, groups=groups)


_pick = lru_cache(maxsize=256)(pick)


GROUPED_MATMUL = Family(
    name="grouped_matmul",
    summary="D = activation(A @ B) of groups of rows, each times a matrix of its own; bounds may stay on the device",
    targets=tuple(TARGETS),
    arguments=GroupedArguments,
    spec=MatmulSpec,
    select=select,
    compile=partial(build, kind=GroupedKernel),
    choices=MatmulChoices(),
    grouped=True,
)
