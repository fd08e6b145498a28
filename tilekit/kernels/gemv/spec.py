"""What a gemv kernel computes: types, layout of the weights, how many tokens at most. Shapes are run-time values."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilekit.annotations import call_checked, check_fields
from tilekit.dtypes import BF16, DType
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tiles.call import Major, fits

TOKENS = (1, 2, 4, 8)
"""Rows of A that a kernel can be built for; eight is the width of the matrix instruction."""

VECTOR = 16
"""Bytes of the widest load."""


@call_checked
@dataclass(frozen=True)
class GemvSpec:
    """``D = activation(scale * (A @ B) + bias + beta * residual)`` with a few rows of A, f32 accumulation.

    A row of A is a *token*, B holds the *weights*. Types may be given as anything `tilekit.dtypes.as_dtype` takes.

    Attributes
    ----------
    a_dtype, b_dtype, out_dtype
        As for `MatmulSpec`.
    b_major
        ``"k"`` where K is the weights' contiguous dimension (rows of a linear layer), ``"mn"`` where N is. fp8 weights
        must be ``"k"``. K is always A's contiguous dimension.
    tokens
        Most rows of A: 1, 2, 4 or 8.
    functions
        Scale, bias, residual and activation.
    a_access, b_access
        Bytes of one load: 16, or the largest power of two that divides address, pitch and row of the operand.
    weights_ready
        The weights are complete before the launch is made, whatever runs before it in the stream: they are then read
        while that ends. False: they are only brought into L2 meanwhile, which is right even while they are written.

    Raises
    ------
    ArgumentError
        What `MatmulSpec` raises for types and functions, ``TK-GV-001`` for a number of tokens, ``TK-GV-002`` for a
        width of loads, ``TK-GV-004`` for 8-bit weights with N contiguous.
    """

    a_dtype: DType = BF16
    b_dtype: DType = BF16
    out_dtype: DType = BF16
    b_major: Major = "k"
    tokens: int = 1
    functions: ElementwiseSpec = field(default_factory=ElementwiseSpec)
    a_access: int = VECTOR
    b_access: int = VECTOR
    weights_ready: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        # The same types, majors and functions as any matmul, with the same errors.
        MatmulSpec(self.a_dtype, self.b_dtype, self.out_dtype, "k", self.b_major, functions=self.functions)
        if self.b_major == "mn" and self.b_dtype.bits == 8:
            raise ArgumentError(
                f"b is {self.b_dtype} and not contiguous along K: the lanes of a gemv interleave rows of 16-bit types "
                "only. Pass b with contiguous columns, for example the .T of an (N, K) array",
                code="TK-GV-004",
            )
        if self.tokens not in TOKENS:
            nearest = min(TOKENS, key=lambda legal: abs(legal - self.tokens))
            raise ArgumentError.of("tokens", self.tokens, legal="1, 2, 4 or 8", nearest=nearest, code="TK-GV-001")
        for name, dtype in (("a_access", self.a_dtype), ("b_access", self.b_dtype)):
            given = getattr(self, name)
            legal = [width for width in (1, 2, 4, 8, VECTOR) if width >= dtype.bytes]
            if given not in legal:
                raise ArgumentError.of(
                    name,
                    given,
                    legal=f"{', '.join(map(str, legal))} bytes",
                    nearest=min(legal, key=lambda width: abs(width - given)),
                    code="TK-GV-002",
                )

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile, for example ``gemv_bf16_bf16_bf16_kk_m4_bias_f32``."""
        f = self.functions
        extras = [
            f"m{self.tokens}",
            *f.words,
            f"a{self.a_access}" if self.a_access != VECTOR else "",
            f"b{self.b_access}" if self.b_access != VECTOR else "",
            "ready" if self.weights_ready else "",
        ]
        majors = f"k{'k' if self.b_major == 'k' else 'n'}"
        return "_".join(
            ["gemv", self.a_dtype.name, self.b_dtype.name, self.out_dtype.name, majors, *filter(None, extras)]
        )


def counted(what: str, value: int, bits: int = 32) -> int:
    """Return `value` if the kernels can count it in so many bits; else raise ``TK-GV-006``."""
    return fits(what, value, bits, "TK-GV-006")
