"""A compiled matmul: one object that shows its text, its machine code and its budgets, and binds to arrays."""

from __future__ import annotations

from functools import cache, cached_property
from math import prod
from typing import Any

import numpy as np

from tilekit.arrays import (
    ArrayView,
    empty_like_library,
    host_array,
    overlap,
    require_output,
    require_same_place,
    view_of,
)
from tilekit.dtypes import BF16, F16, F32
from tilekit.epilogue.functions import ScaleKind
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.arguments import Addresses, MatmulLaunch, Scratch, launch_arguments
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.explain import explain
from tilekit.kernels.matmul.kernel import KernelText, trace
from tilekit.kernels.matmul.plan import DevicePlan, EmulatedPlan, MatmulPlan, StagedPlan
from tilekit.kernels.matmul.problem import (
    TMA_ALIGNMENT,
    MatmulCall,
    MatmulProblem,
    Matrix,
    matrix_view,
    output_matrix,
    read_problem,
    store_kind,
)
from tilekit.kernels.matmul.spec import Load, MatmulSpec
from tilekit.runtime.assembler import Assembled, Resources, assemble, disassemble
from tilekit.runtime.launch import CudaKernel, CudaModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.targets import Target


class MatmulKernel:
    """A matmul for one spec, config and target; any shape the spec's majors allow.

    Parameters
    ----------
    spec, config, target
        What to compute, how, and for which chip.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """

    def __init__(self, spec: MatmulSpec, config: KernelConfig, target: Target) -> None:
        self.spec = spec
        self.config = config
        self.target = target
        self.text: KernelText = trace(spec, config, target)
        self._resident: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    def k_block(self) -> int:
        """Elements of K in a stage."""
        return self.config.k_block(self.spec.a_dtype)

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return self.text.name

    @property
    def ptx(self) -> str:
        """The module's text, each line with its role and origin."""
        return self.text.ptx

    @cached_property
    def assembled(self) -> Assembled:
        """The machine code, from ptxas or the disk cache."""
        return assemble(self.ptx, self.target.name, kernel_name=self.name)

    @property
    def resources(self) -> Resources:
        """Registers, spills, shared memory and barriers, as ptxas reports them."""
        return self.assembled.resources

    @cached_property
    def isa(self) -> str:
        """The machine code, disassembled (SASS)."""
        return disassemble(self.assembled.cubin)

    def explain(self) -> str:
        """Roles and warps, registers, the shared-memory map, barriers and who arrives, bytes and FLOPs per tile."""
        return explain(self.spec, self.config, self.text)

    @cached_property
    def cuda(self) -> CudaKernel:
        """The kernel in the CUDA driver."""
        return CudaModule.from_ptx(self.ptx, self.target.name, kernel_name=self.name).kernel(self.name)

    def resident_clusters(self, ordinal: int) -> int:
        """Clusters the device holds at once."""
        if ordinal not in self._resident:
            self._resident[ordinal] = self.cuda.max_active_clusters(
                self.launch_config(self.text.cluster), ordinal=ordinal
            )
        return self._resident[ordinal]

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes.

        A kernel with accumulators in tensor memory asks for more than half of what there is: two clusters on the same
        multiprocessors could each hold columns that the other waits for.
        """
        alone = self.target.shared_bytes // 2 if self.target.tensor_columns else 0
        return max(self.text.shared_bytes, alone)

    def launch_config(self, grid: int) -> LaunchConfig:
        """The launch's shape for a grid of so many CTAs."""
        return LaunchConfig(
            grid=(grid, 1, 1),
            block=(self.text.threads, 1, 1),
            cluster=(self.text.cluster, 1, 1),
            shared_bytes=self.launch_bytes,
            pdl=True,
        )

    def bind(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        *,
        bias: Any = None,
        scale: Any = None,
        residual: Any = None,
        beta: float = 1.0,
        device: str | None = None,
        seed: int = 0,
        **emulator: Any,
    ) -> MatmulPlan:
        """Check the arrays once and prepare the launch; calling the result launches it, and returns `out`.

        Parameters
        ----------
        a, b, out, bias, residual, beta
            Arrays and a number, as for `tilekit.matmul`; a new `out` is made where it is None. The plan keeps using the
            arrays' memory.
        scale
            A number, or an array of one f32.
        device
            ``"cuda"`` to run arrays in host memory on the GPU (they are copied there and back at each call); by
            default they are emulated.
        seed, **emulator
            Of the emulator's schedule, and its other options (`tilekit.emulator.Device`).

        Raises
        ------
        ArgumentError
            For arrays that do not fit this kernel, naming the argument.
        """
        if device not in (None, "cuda"):
            raise ArgumentError.of(
                "device", device, legal="None, or 'cuda' for arrays in host memory", nearest="cuda", code="TK-MM-016"
            )
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        problem = read_problem(va, vb)
        if out is None:
            out = empty_like_library(va, problem.out_shape, self.spec.out_dtype)
        vo = matrix_view(out, "out")
        named = [("a", va), ("b", vb)]
        require_output(vo, problem.out_shape, self.spec.out_dtype, named)
        vbias = read_bias(bias, problem.n) if bias is not None else None
        factor = read_scale(scale)
        vres = read_residual(residual, vo) if residual is not None else None
        named_extras = (("bias", vbias), ("scale", factor), ("residual", vres))
        extras = [(n, v) for n, v in named_extras if isinstance(v, ArrayView)]
        require_same_place([*named, *extras, ("out", vo)])
        matrix = output_matrix(vo)
        added = output_matrix(vres, "residual") if vres is not None else None
        self._check_fit(problem, matrix, vo, vbias, factor, vres, added)
        operands = {"a": va, "b": vb, "out": vo, **dict(extras)}
        call = MatmulCall(problem, matrix, factor if isinstance(factor, float) else 1.0, added, float(beta))
        if problem.m == 0 or problem.n == 0 or problem.batches == 0:
            return MatmulPlan(out, vo)
        if vo.device != "cpu":
            return DevicePlan(self, call, operands, out)
        if device == "cuda":
            return StagedPlan(self, call, operands, out)
        return EmulatedPlan(self, call, operands, out, seed=seed, **emulator)

    def arguments(self, call: MatmulCall, addresses: Addresses, resident: int, scratch: Scratch) -> MatmulLaunch:
        """Grid and parameters of a launch."""
        return launch_arguments(self.text, self.config, call, addresses, resident_clusters=resident, scratch=scratch)

    def _check_fit(
        self,
        problem: MatmulProblem,
        matrix: Matrix,
        out: ArrayView,
        bias: ArrayView | None,
        scale: float | ArrayView | None,
        residual: ArrayView | None,
        added: Matrix | None,
    ) -> None:
        spec, f = self.spec, self.spec.functions
        if spec.store == "tma" and 0 not in out.shape and store_kind(out.address, matrix) == "direct":
            raise ArgumentError(
                f"out at address {out.address:#x}, with rows of {out.shape[-1] * out.dtype.bytes} bytes that are "
                f"{matrix.pitch} bytes apart, cannot be written by the copy engine, which needs multiples of 16; build "
                "the kernel with MatmulSpec(store='direct'), or pass an out of padded rows with a whole number of 16 "
                "bytes",
                code="TK-MM-016",
            )
        for operand, load in zip((problem.a, problem.b), spec.loads, strict=True):
            self._check_loadable(operand, load)
        if residual is not None and added is not None and spec.loads_residual and 0 not in out.shape:
            self._check_readable(residual, added)
        facts = (
            ("a's type", problem.a.dtype, spec.a_dtype),
            ("b's type", problem.b.dtype, spec.b_dtype),
            ("a's major", problem.a.major, spec.a_major),
            ("b's major", problem.b.major, spec.b_major),
            ("batching", problem.batched, spec.batched),
            ("bias's type", bias.dtype if bias is not None else None, f.bias),
            ("scale", scale_kind(scale), f.scale),
            ("the residual's type", residual.dtype if residual is not None else None, f.residual),
        )
        for what, given, built in facts:
            if given != built:
                raise ArgumentError(
                    f"{what} is {given}, but {self.name} was built for {built}; build a kernel for these arrays, or "
                    "call tilekit.matmul, which does",
                    code="TK-MM-016",
                )

    @staticmethod
    def _check_loadable(operand: Matrix, load: Load) -> None:
        if operand.load == "tma" or (load != "tma" and load <= operand.load):
            return
        needed = TMA_ALIGNMENT if load == "tma" else load
        raise ArgumentError(
            f"{operand.name}'s address and pitches (its rows are {operand.pitch} bytes apart) are multiples of "
            f"{operand.load} bytes only, and the kernel was built for multiples of {needed}; "
            f"build the kernel with MatmulSpec({operand.name}_load={operand.load}), or pass an array of padded rows",
            code="TK-MM-016",
        )

    @staticmethod
    def _check_readable(residual: ArrayView, added: Matrix) -> None:
        if store_kind(residual.address, added) == "direct":
            raise ArgumentError(
                f"residual at address {residual.address:#x}, with rows {added.pitch} bytes apart, cannot be read by "
                "the copy engine, which needs multiples of 16; build the kernel with MatmulSpec(store='direct'), or "
                "pass a residual of padded rows",
                code="TK-MM-016",
            )


def read_bias(bias: Any, n: int) -> ArrayView:
    """Check a bias vector: N contiguous values of bf16, f16 or f32."""
    view = view_of(bias, "bias")
    if view.shape != (n,) or (n > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"bias has shape {view.shape} and strides {view.strides}: one contiguous value for each of the {n} "
            f"columns is needed, shape ({n},)",
            code="TK-MM-017",
        )
    if view.dtype not in (BF16, F16, F32):
        raise ArgumentError(f"bias is {view.dtype}: bf16, f16 or f32 is needed; nearest: f32", code="TK-MM-017")
    return view


def read_residual(residual: Any, out: ArrayView) -> ArrayView:
    """Check a residual: a matrix (or a batch of them, or one for all of a batch) like the output."""
    view = matrix_view(residual, "residual")
    shapes = (out.shape, out.shape[-2:], (1, *out.shape[-2:]))[: 1 if len(out.shape) == 2 else 3]
    if view.shape not in shapes or view.dtype != out.dtype:
        raise ArgumentError(
            f"residual is {view.dtype} of shape {view.shape}: it is added to the result, {out.dtype} of shape "
            f"{out.shape}"
            + ("" if len(out.shape) == 2 else f"; one of shape {out.shape[-2:]} is added to every matrix of the batch"),
            code="TK-MM-020",
        )
    if overlap(view, out) and (view.address, view.strides) != (out.address, out.strides):
        raise ArgumentError(
            "residual overlaps out in memory without being the same array: the kernel would read what it has already "
            "written; pass the same array or another one",
            code="TK-MM-020",
        )
    return view


def read_scale(scale: Any) -> float | ArrayView | None:
    """Check a scale: a number as it is (also out of an array in host memory), or the view of one f32 in device memory.

    Reading the number of a device array would wait for the device, so the kernel reads it.
    """
    if scale is None:
        return None
    if isinstance(scale, np.generic) or not hasattr(scale, "shape"):
        try:
            return float(scale)
        except (TypeError, ValueError):
            raise ArgumentError.of("scale", scale, legal="a number or an array of one f32", code="TK-MM-018") from None
    view = scale_view(scale)
    return float(host_array(view).reshape(())) if view.device == "cpu" else view


def scale_view(scale: Any) -> ArrayView:
    """Check a scale that is an array: one f32. Its value is not looked at."""
    view = view_of(scale, "scale")
    if prod(view.shape) != 1 or view.dtype != F32:
        raise ArgumentError(
            f"scale is {view.dtype} of shape {view.shape}: a number or an array of one f32 is needed (one factor for "
            "the whole product)",
            code="TK-MM-018",
        )
    return view


def scale_kind(scale: float | ArrayView | None) -> ScaleKind | None:
    """How a kernel receives this scale."""
    return None if scale is None else "value" if isinstance(scale, float) else "pointer"


@cache
def compiled(spec: MatmulSpec, config: KernelConfig, target: Target) -> MatmulKernel:
    """Return the one kernel of the process for this spec, config and target."""
    return MatmulKernel(spec, config, target)
