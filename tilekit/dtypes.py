"""Element types: one :class:`DType` a type, found from whatever a library calls it.

Every other file spells an element type as the PTX ISA does (``bf16``, ``e4m3``). The libraries spell it in their own
way (``torch.bfloat16``, ``ml_dtypes.float8_e4m3fn``, ``np.dtype("float16")``), and :func:`as_dtype` knows them all.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError
from tilekit.tensor.dtypes import element_type

__all__ = [
    "BF16",
    "DTYPES",
    "E2M1",
    "E2M1X2",
    "E4M3",
    "E4M3FNUZ",
    "E5M2",
    "E5M2FNUZ",
    "F16",
    "F32",
    "FNUZ",
    "FP8",
    "S8",
    "S32",
    "U8",
    "UE8M0",
    "DType",
    "as_dtype",
    "nearest_dtype",
]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DType:
    """One element type and its names in every vocabulary that tilekit meets.

    There is one object a type, compared by identity: a copy or a pickle gives the same object back.

    Attributes
    ----------
    name : str
        tilekit's name, which is also the PTX type without its dot (PTX ISA, "Fundamental Types" and "Alternate
        Floating-Point Data Formats").
    bits : int
        Bits an element.
    numpy : numpy.dtype
        The NumPy type, from ml_dtypes where NumPy has none. Its name is torch's name too.
    tensor_map : str
        The element type of a tensor map, as the emulator names it; 8-bit floats move as ``u8``.
    dlpack : tuple of (int, int)
        ``DLDataTypeCode`` and bits, as DLPack 1.1 writes them.
    epsilon : float
        Distance from 1 to the next larger value.
    """

    name: str
    bits: int
    numpy: np.dtype[Any]
    tensor_map: str
    dlpack: tuple[int, int]
    epsilon: float

    @property
    def bytes(self) -> int:
        """Bytes an element."""
        return self.bits // 8

    @property
    def packed(self) -> int:
        """Numbers in an element: 2 where it is a pair of them."""
        return 2 if self.name.endswith("x2") else 1

    @property
    def ptx(self) -> str:
        """The PTX type with its dot, as an instruction's suffix writes it (``.bf16``)."""
        return f".{self.name}"

    @property
    def long_name(self) -> str:
        """The name NumPy, ml_dtypes and torch share (``bfloat16``, ``float8_e4m3fn``)."""
        return self.numpy.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return as_dtype, (self.name,)


def _type(name: str, numpy_type: Any, tensor_map: str, dlpack_code: int, epsilon: float) -> DType:
    bits = element_type(name).bits
    return DType(name, bits, np.dtype(numpy_type), tensor_map, (dlpack_code, bits), epsilon)


BF16: Final = _type("bf16", ml_dtypes.bfloat16, "bf16", 4, 2.0**-7)
F16: Final = _type("f16", np.float16, "f16", 2, 2.0**-10)
F32: Final = _type("f32", np.float32, "f32", 2, 2.0**-23)
E4M3: Final = _type("e4m3", ml_dtypes.float8_e4m3fn, "u8", 10, 2.0**-3)
E5M2: Final = _type("e5m2", ml_dtypes.float8_e5m2, "u8", 12, 2.0**-2)
E4M3FNUZ: Final = _type("e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "u8", 11, 2.0**-3)
E5M2FNUZ: Final = _type("e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "u8", 13, 2.0**-2)
"""The 8-bit floats of gfx942, with neither infinities nor a negative zero."""
S8: Final = _type("s8", np.int8, "u8", 0, 1.0)
"""Weights that a loader widens on their way."""
S32: Final = _type("s32", np.int32, "s32", 0, 1.0)
"""Row counts and offsets."""

U8: Final = _type("u8", np.uint8, "u8", 1, 1.0)
"""Bytes that stand for what their place in a call says: pairs of e2m1, or scales."""
UE8M0: Final = _type("ue8m0", ml_dtypes.float8_e8m0fnu, "u8", 14, 1.0)
"""Scales that are powers of two."""
E2M1: Final = _type("e2m1", ml_dtypes.float4_e2m1fn, "16u4_align8B", 17, 0.5)
"""One to a byte, as ml_dtypes keeps them; kernels read pairs."""
E2M1X2: Final = _type("e2m1x2", np.uint8, "u8", 17, 0.5)
"""Two e2m1 in a byte, the first in its low half."""

DTYPES: Final = (BF16, F16, F32, E4M3, E5M2)
"""Every type that products are computed of, in the order in which messages list them."""

FP8: Final = (E4M3, E5M2)
"""The OCP's 8-bit floats, which most chips multiply."""

FNUZ: Final = {E4M3: E4M3FNUZ, E5M2: E5M2FNUZ}
"""Of these, those with neither infinities nor a negative zero that chips with ``fnuz_floats`` have."""

_OTHERS: Final = (S8, S32, U8, E4M3FNUZ, E5M2FNUZ, UE8M0, E2M1, E2M1X2)
"""Types of some kernels' operands, which no message lists."""

_BY_NAME: Final[dict[str, DType]] = {
    **{dtype.name: dtype for dtype in (*DTYPES, *_OTHERS)},
    **{dtype.long_name: dtype for dtype in (*DTYPES, *_OTHERS)},
    "half": F16,
    "fp16": F16,
    "single": F32,
    "fp32": F32,
    "e4m3fn": E4M3,
    "float4_e2m1fn_x2": E2M1X2,
    "uint8": U8,
}

_NEAREST: Final = {
    **dict.fromkeys(("f64", "fp64", "float64", "double", "longdouble", "float128"), F32),
    **dict.fromkeys(("int64", "uint64", "uint32", "long"), S32),
    "fp8": E4M3,
    "float8": E4M3,
}
"""What is meant by names that are like none, or like another one."""

_KNOWN: Final[dict[Any, DType]] = {}
"""What has been asked for before. Library types are hashable, and there are few of them."""


def as_dtype(what: Any, name: str = "dtype") -> DType:
    """Return the :class:`DType` that ``what`` names.

    Parameters
    ----------
    what : DType, str, numpy.dtype, scalar type or torch.dtype
        ``"bf16"``, ``"bfloat16"``, ``np.float16``, ``ml_dtypes.float8_e4m3fn``, ``torch.float8_e5m2``, ... CuPy's types
        are NumPy's.
    name : str
        Whose element type it is, for the message.

    Raises
    ------
    ArgumentError
        ``TK-DTYPE-001`` when no element type goes by that name; the message lists all of them and the nearest.
    """
    try:
        return _KNOWN[what]
    except KeyError:
        dtype = _KNOWN[what] = _resolve(what, name)
        return dtype
    except ArgumentError:
        raise
    except Exception:  # it cannot be hashed, or its own methods fail
        raise _unknown(what, name) from None


def _resolve(what: Any, name: str) -> DType:
    if isinstance(what, DType):
        return what
    if isinstance(what, str):
        found = _BY_NAME.get(what)
    elif type(what).__module__.partition(".")[0] == "torch":
        found = _BY_NAME.get(str(what).removeprefix("torch."))
    else:
        try:
            if isinstance(what, int | float | complex | np.generic):
                raise TypeError("a number, which NumPy takes for its type")
            numpy_type = np.dtype(what)
        except Exception:  # NumPy asks the object, whose methods may fail in any way
            raise _unknown(what, name) from None
        found = next((dtype for dtype in (*DTYPES, *_OTHERS) if dtype.numpy == numpy_type), None)
    if found is None:
        raise _unknown(what, name)
    return found


def _unknown(what: Any, name: str) -> ArgumentError:
    try:
        text = np.dtype(what).name if isinstance(what, type) else str(what).removeprefix("torch.")
    except Exception:
        text = shown(what)
    legal = ", ".join(f"{dtype.name} ({dtype.long_name})" for dtype in DTYPES)
    legal += (
        f"; of whole numbers, where an argument takes them, {S8.name} ({S8.long_name}) and {S32.name} ({S32.long_name})"
    )
    nearest = nearest_dtype(what if isinstance(what, np.dtype) else text)
    return ArgumentError.of(name, text, legal=legal, nearest=nearest and nearest.name, code="TK-DTYPE-001")


def nearest_dtype(what: object) -> DType | None:
    """Return the element type that `what` may have meant, which names none; None where it is like no name."""
    text = str(what)
    names = [name for name, dtype in _BY_NAME.items() if dtype not in _OTHERS]
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    nearest = _NEAREST.get(text, _BY_NAME[close[0]] if close else None)
    if isinstance(what, np.dtype):  # of the other byte order
        native = what.newbyteorder("=")
        nearest = next((dtype for dtype in (*DTYPES, S32) if dtype.numpy == native), nearest)
    return nearest
