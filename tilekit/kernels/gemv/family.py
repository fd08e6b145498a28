"""The gemv among the families: products of a few rows, where it is quicker than the matmul."""

from __future__ import annotations

from tilekit.annotations import checked
from tilekit.arrays import ArrayView
from tilekit.dtypes import FP8, S8, DType
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.family import Declined, Family, Selection, TunedConfigs
from tilekit.kernels.gemv.choices import GemvChoices
from tilekit.kernels.gemv.compiled import GemvKernel, compiled
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.picker import MOST_TOKENS, pick, uneven
from tilekit.kernels.gemv.problem import access, read_gemv
from tilekit.kernels.gemv.spec import TOKENS, GemvSpec
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.problem import MatmulProblem
from tilekit.kernels.resolve import gpu_name
from tilekit.targets import SM_90A, Target

FEWEST_8_BIT_ROWS = 3
"""Rows of A from which on 8-bit weights are a matmul's."""


def select(arguments: MatmulArguments, tuned: TunedConfigs | None) -> Selection | Declined:
    """The kernel for a product of a few rows that this family computes faster."""
    a, b = arguments.a, arguments.b
    if arguments.epilogue.written is not None:
        return Declined("a Python epilogue is the matmul's")
    if S8 in (a.dtype, b.dtype):
        return Declined("sums of whole numbers are the matmul's")
    if arguments.components:
        return Declined("components are a matmul's")
    if arguments.config is not None:
        return Declined("a matmul's config is given")
    if len(a.shape) != 2 or not 1 <= a.shape[0] <= MOST_TOKENS or 0 in b.shape:
        return Declined(f"it takes 1 to {MOST_TOKENS} rows, without batches")
    # Its sums are f32 either way; what is no legal accumulation the matmul refuses.
    summed = arguments.accumulation == "fast" or (arguments.accumulation == "promoted" and a.dtype in FP8)
    if arguments.precision is not None or not summed:
        return Declined("precision and accumulation are the matmul's")
    try:
        problem = read_gemv(a, b)
        if _streams_better(arguments, problem):
            return Declined("the copy engine brings a matmul these operands, and it is quicker for such weights")
        functions = arguments.epilogue.functions(arguments.activation)
        assert isinstance(functions, ElementwiseSpec), "a Python epilogue was declined"
        spec = spec_of(problem, a, b, arguments.out.dtype, functions)
        picked = pick(spec, arguments.target, n=problem.n, k=problem.k)
        if _brought(arguments) and uneven(picked, spec, arguments.target, n=problem.n, k=problem.k):
            return Declined("the copy engine brings a matmul these operands, whose tiles occupy the chip more evenly")
    except ArgumentError as error:
        return Declined(error.message)
    target, config = arguments.target, None
    if tuned is not None and a.device != "cpu":
        shape = {"m": spec.tokens, "n": problem.n, "k": problem.k, "batches": 1}
        config = tuned(spec, target, gpu_name(a.device), **shape, call=arguments)
    if config is None:
        config = picked
    return Selection(compiled(spec, config, target), arguments.reading(problem))


def spec_of(
    problem: MatmulProblem, a: ArrayView, b: ArrayView, out_dtype: DType, functions: ElementwiseSpec
) -> GemvSpec:
    """The gemv for these operands: the narrowest bound on the tokens, and the widest loads."""
    return GemvSpec(
        a_dtype=a.dtype,
        b_dtype=b.dtype,
        out_dtype=out_dtype,
        b_major=problem.b.major,
        tokens=next(tokens for tokens in TOKENS if tokens >= problem.m),
        functions=functions,
        a_access=access(a, problem.a),
        b_access=access(b, problem.b),
    )


def _streams_better(arguments: MatmulArguments, gemv: MatmulProblem) -> bool:
    """Whether the copy engine brings a matmul its operands, and weights that it is quicker for.

    With N contiguous the matmul takes 0.88 to 0.96 of a gemv's time in six cases of M from 1 to 5, and 0.45 in
    1x5120x5120; with 8-bit weights 0.88 and 0.94 at M = 3 and 5, 1.02 at 4 and 0.96 to 1.06 below (H200).
    """
    if gemv.b.major == "k" and (arguments.b.dtype.bits > 8 or gemv.m < FEWEST_8_BIT_ROWS):
        return False
    return _brought(arguments)


def _brought(arguments: MatmulArguments) -> bool:
    """Whether the copy engine moves a matmul's operands and result."""
    problem = arguments.problem
    return problem.a.load == problem.b.load == arguments.store_of_out == "tma"


@checked
def build(spec: GemvSpec, config: GemvConfig | None, target: Target) -> GemvKernel:
    """The kernel for a spec."""
    return compiled(spec, GemvConfig() if config is None else config, target)


GEMV = Family(
    name="gemv",
    summary="the matmul of up to 8 rows, streamed at the speed of memory",
    targets=(SM_90A.name,),
    arguments=MatmulArguments,
    spec=GemvSpec,
    select=select,
    compile=build,
    most_rows=MOST_TOKENS,
    choices=GemvChoices(),
)
