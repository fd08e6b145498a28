"""The arguments of a launch as bytes of its parameters, and the arrays among them as buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.ptx.language.syntax import TYPE_BYTES, Variable

__all__ = ["encode"]


def encode(index: int, value: Any, parameter: Variable) -> bytes:
    """The bytes of one argument, which must be exactly as many as the parameter has."""
    name = f"args[{index}] ({parameter.name})"
    legal = f"{parameter.size} bytes of .{parameter.type}"
    data: bytes
    if value is None:
        data = bytes(8)
    elif hasattr(value, "address"):
        data = int(value.address).to_bytes(8, "little")
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    elif isinstance(value, np.generic):
        data = value.tobytes()
    elif isinstance(value, bool | int | float):
        data = _encode_number(name, value, parameter)
    elif hasattr(value, "__bytes__"):
        data = bytes(value)
    else:
        raise LaunchError.argument(name, type(value).__name__, f"{legal}: a Buffer, an array, a scalar or bytes")
    if len(data) != parameter.size:
        raise LaunchError.argument(name, f"{len(data)} bytes ({type(value).__name__})", legal)
    return data


def _encode_number(name: str, value: float, parameter: Variable) -> bytes:
    kind = parameter.type
    if kind in ("f32", "f64", "f16"):
        return np.array([value], f"f{TYPE_BYTES[kind]}").tobytes()
    bits = parameter.size * 8
    if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits or bits > 64:
        raise LaunchError.argument(name, value, f"an integer of {bits} bits")
    return (value & ((1 << bits) - 1)).to_bytes(parameter.size, "little")
