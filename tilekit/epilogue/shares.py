"""How shares of a sum are added: as f32, or as the whole numbers whose bits registers of f32 hold."""

from __future__ import annotations

from typing import Literal

from tilekit.assembly.types import F32, S32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer

ShareKind = Literal["f32", "whole", "rounded"]
"""What shares are: f32; the bits of whole numbers, whose sum stays one; or such bits, whose sum is rounded to f32."""


def add_shares(w: Writer, kind: ShareKind, one: Value, other: Value) -> Value:
    """The sum of two shares, of the same kind."""
    if kind == "f32":
        return one.retyped(F32) + other.retyped(F32)
    whole = _whole(w, one) + _whole(w, other)
    return w.isa.convert.bits_f32(whole=whole)  # type: ignore[no-any-return]


def finished_sum(w: Writer, kind: ShareKind, total: Value) -> Value:
    """The sum of all shares, as an epilogue takes it."""
    return w.isa.convert.float_s32(whole=_whole(w, total)) if kind == "rounded" else total


def _whole(w: Writer, bits: Value) -> Value:
    """A share as the whole number that it is."""
    return w.isa.convert.bits_s32(bits=bits) if bits.type is F32 else bits.retyped(S32)
