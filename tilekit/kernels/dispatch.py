"""Which kernel computes a product of two arrays."""

from __future__ import annotations

from functools import lru_cache

from tilekit.arrays import ArrayView
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.epilogue_arguments import EpilogueArguments
from tilekit.kernels.gemv.picker import MOST_TOKENS, offer
from tilekit.kernels.gemv.problem import read_gemv
from tilekit.kernels.matmul.compiled import compiled
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.spec import Accumulation, Precision
from tilekit.kernels.problem import MatmulProblem, output_matrix, read_problem, store_kind
from tilekit.runtime import driver
from tilekit.targets import Target
from tilekit.tuning.tuner import tuned

_pick = lru_cache(maxsize=1024)(pick)
"""What the picker chose for a layout: asking it again costs ten times the rest of binding."""


def choose(
    a: ArrayView,
    b: ArrayView,
    out: ArrayView,
    extras: EpilogueArguments,
    activation: Activation | None,
    precision: Precision | None,
    accumulation: Accumulation,
    config: KernelConfig | None,
    chip: Target,
) -> CompiledKernel:
    """Return the kernel for arrays laid out like these: a gemv, what tuning found, or what the model picks.

    Parameters
    ----------
    a, b, out
        Views of the operands and of the output.
    extras, activation, precision, accumulation
        What else is computed.
    config
        The config of a matmul to take instead.
    chip
        Where it runs.

    Raises
    ------
    ArgumentError, ConfigError
        For what no kernel computes, and for a `config` that breaks a rule.
    """
    functions = extras.functions(activation)
    # What no matmul takes is refused in its words, although a gemv, whose sums are f32 either way, would not mind.
    read_product(a, b).spec(out.dtype, functions, store="direct", precision=precision, accumulation=accumulation)
    gemv = offer(a, b, out, functions, chip) if config is None and precision is None else None
    if gemv is not None:
        return gemv
    problem = read_problem(a, b)
    store = store_kind(out.address, output_matrix(out))
    if extras.residual is not None:
        kinds = {store, store_kind(extras.residual.address, output_matrix(extras.residual, "residual"))}
        store = "tma" if kinds | {problem.a.load, problem.b.load} == {"tma"} else "direct"
    spec = problem.spec(out.dtype, functions, store=store, precision=precision, accumulation=accumulation)
    if config is None and a.device != "cpu":
        name = driver.devices()[a.device[1]].name
        config = tuned(spec, chip, name, m=problem.m, n=problem.n, k=problem.k, batches=problem.batches)
    if config is None:
        config = _pick(spec, chip, m=problem.m, n=problem.n, k=problem.k, batches=problem.batches)
    return compiled(spec, config, chip)


def read_product(a: ArrayView, b: ArrayView) -> MatmulProblem:
    """Check two operands against each other: what a matmul takes, or a gemv, which reads any alignment."""
    try:
        return read_problem(a, b)
    except ArgumentError:
        if len(a.shape) != 2 or not 1 <= a.shape[0] <= MOST_TOKENS:
            raise
        try:
            return read_gemv(a, b)
        except ArgumentError:
            pass
        raise
