"""One gemv to check: shape, layout down to the element, kernel, and what the inputs hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.matmul.matmul_case import Case, Data, Kernel, Layout
from tests.matmul.matmul_data import inputs_of
from tests.matmul.matmul_machine import Machine
from tests.matmul.matmul_reference import compare, expected_of
from tilekit import ElementwiseSpec
from tilekit.arrays import view_of
from tilekit.dtypes import F32, as_dtype
from tilekit.kernels.gemv.compiled import GemvKernel, compiled
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.family import spec_of
from tilekit.kernels.gemv.picker import pick
from tilekit.kernels.gemv.problem import read_gemv
from tilekit.kernels.plan import EmulatedPlan
from tilekit.targets import SM_90A


@dataclass(frozen=True)
class Gemv:
    """A gemv.

    Attributes
    ----------
    m, n, k
        Extents.
    dtype, out
        Types of the operands and of the output. A second operand type follows a dot.
    major
        ``"k"`` or ``"n"``: B's contiguous dimension.
    tokens
        Bound of M that the kernel is built for; None for the narrowest.
    scale, bias, activation
        As of the matmul's cases.
    pads, leads
        Elements by which the pitches of A, B and the output exceed their rows, and at which they begin.
    config
        None for the picker's.
    ready
        Whether the weights are said to be ready.
    sms
        Multiprocessors of the emulated device, where not all of the chip's: with few, few tiles are many for a CTA.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    out: str = "f32"
    major: str = "k"
    tokens: int | None = None
    scale: str | None = None
    bias: str | None = None
    activation: str | None = None
    pads: tuple[int, int, int] = (0, 0, 0)
    leads: tuple[int, int, int] = (0, 0, 0)
    config: GemvConfig | None = None
    ready: bool = False
    sms: int | None = None
    data: Data = "integers"
    seed: int = 0

    def __str__(self) -> str:
        words = [f"{self.m}x{self.n}x{self.k}", f"{self.dtype}.{self.out}", self.major, self.data]
        words += [word for word in (self.bias and f"bias_{self.bias}", self.activation, self.scale) if word]
        if any(self.pads + self.leads):
            words.append("p{}.{}.{}l{}.{}.{}".format(*self.pads, *self.leads))
        if self.config:
            c = self.config
            words.append(f"g{c.groups}d{c.depth}w{c.warps}c{c.cluster}s{c.ctas_per_sm}p{c.prefetch}")
        return "-".join([*words, *(["ready"] if self.ready else []), *([f"t{self.tokens}"] if self.tokens else [])])

    @property
    def types(self) -> tuple[str, str]:
        """Element types of A and B."""
        a, _, b = self.dtype.partition(".")
        return a, b or a

    @property
    def case(self) -> Case:
        """The same problem as the matmul's data and reference know it."""
        a, b = self.types
        majors = f"k{self.major}"
        kernel = Kernel(a, b, self.out, majors, scale=self.scale, bias=self.bias, activation=self.activation)
        return Case(kernel, self.m, self.n, self.k, data=self.data, seed=self.seed)

    @property
    def layouts(self) -> tuple[Layout, Layout, Layout]:
        """Where A, B and the output lie."""
        a = Layout((self.m, self.k), (self.k + self.pads[0], 1), self.leads[0])
        shape = (self.k, self.n)
        strides = (1, self.k + self.pads[1]) if self.major == "k" else (self.n + self.pads[1], 1)
        return (
            a,
            Layout(shape, strides, self.leads[1]),
            Layout((self.m, self.n), (self.n + self.pads[2], 1), self.leads[2]),
        )


def kernel_for(a: Any, b: Any, out: Any, functions: ElementwiseSpec) -> GemvKernel:
    """The kernel that the family builds for arrays that lie so, wherever they are and whether it is the quicker one."""
    va, vb, vo = view_of(a, "a"), view_of(b, "b"), view_of(out, "out")
    problem = read_gemv(va, vb)
    spec = spec_of(problem, va, vb, vo.dtype, functions)
    return compiled(spec, pick(spec, SM_90A, n=problem.n, k=problem.k), SM_90A)


def kernel_of(gemv: Gemv, a: Any, b: Any, out: Any) -> GemvKernel:
    """The kernel that a case asks for, for arrays that lie so."""
    functions = ElementwiseSpec(
        scale={None: None, "number": "value", "array": "pointer"}[gemv.scale],  # type: ignore[arg-type]
        bias=as_dtype(gemv.bias) if gemv.bias else None,
        activation=gemv.activation,  # type: ignore[arg-type]
    )
    kernel = kernel_for(a, b, out, functions)
    changes: dict[str, Any] = {"weights_ready": gemv.ready}
    if gemv.tokens:
        changes["tokens"] = gemv.tokens
    return compiled(replace(kernel.spec, **changes), gemv.config or kernel.config, SM_90A)


def check(machine: Machine, gemv: Gemv) -> GemvKernel:
    """Run a case on a poisoned output and compare it; operands and all that lies around must stay as they were."""
    import numpy as np

    case = gemv.case
    inputs = inputs_of(case)
    a_layout, b_layout, out_layout = gemv.layouts
    a, b = machine.place(inputs.a, a_layout), machine.place(inputs.b, b_layout)
    out = machine.place_output(case.out_dtype, out_layout)
    bias = machine.place(inputs.bias) if inputs.bias is not None else None
    scale: Any = inputs.scale
    scale_array = machine.place(np.array([scale], F32.numpy)) if gemv.scale == "array" else None
    kernel = kernel_of(gemv, a.array, b.array, out.array)
    if scale_array is not None and machine.name == "emulator":  # a host array is a number
        kernel = compiled(
            replace(kernel.spec, functions=replace(kernel.spec.functions, scale="value")), kernel.config, SM_90A
        )
    plan = kernel.bind(
        a.array,
        b.array,
        out.array,
        bias=bias.array if bias else None,
        scale=scale_array.array if scale_array else scale,
        multiprocessors=gemv.sms,
    )
    assert plan() is out.array
    if gemv.sms is not None and isinstance(plan, EmulatedPlan):
        assert plan.report.grid[0] <= gemv.sms
    compare(out.read(), expected_of(case, inputs, machine))
    out.check_surroundings()
    for operand in filter(None, (a, b, bias, scale_array)):
        operand.check_unchanged()
    return kernel
