"""The arguments of a launch as bytes of its kernarg segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.dimensions import Dim3
from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.gcn.language.syntax import Argument

if TYPE_CHECKING:
    from tilekit.emulator.core.memory.buffer import Uploads
    from tilekit.emulator.gcn.device import Device

__all__ = ["pack"]


def pack(
    device: Device, kernel: str, arguments: list[Argument] | None, size: int, values: Sequence[Any], grid: Dim3,
    block: Dim3, lds_bytes: int,
) -> tuple[bytes, Uploads]:  # fmt: skip
    """Return the kernarg segment, and the arrays that were uploaded for it.

    With the kernel's metadata each value must fit its argument, and hidden arguments are filled in; without, values
    follow each other with their natural alignment.
    """
    uploads: Uploads = []
    if arguments is None:
        return _pack_naturally(device, values, size, uploads), uploads
    explicit = [argument for argument in arguments if not argument.kind.startswith("hidden")]
    if len(values) != len(explicit):
        raise LaunchError(
            f"{len(values)} arguments for the {len(explicit)} parameters of kernel '{kernel}'",
            details={"given": len(values), "expected": len(explicit)},
        )
    data = bytearray(max(size, max((a.offset + a.size for a in arguments), default=0)))
    for index, (value, argument) in enumerate(zip(values, explicit, strict=True)):
        part = _encode(device, f"args[{index}]", value, argument.size, uploads)
        data[argument.offset : argument.offset + argument.size] = part
    for argument in arguments:
        if argument.kind.startswith("hidden"):
            hidden = _hidden(argument.kind, grid, block, lds_bytes) & ((1 << 8 * argument.size) - 1)
            data[argument.offset : argument.offset + argument.size] = hidden.to_bytes(argument.size, "little")
    return bytes(data), uploads


def _hidden(kind: str, grid: Dim3, block: Dim3, lds_bytes: int) -> int:
    for axis, letter in enumerate("xyz"):
        values = {
            f"hidden_block_count_{letter}": grid[axis], f"hidden_group_size_{letter}": block[axis],
            f"hidden_remainder_{letter}": 0, f"hidden_global_offset_{letter}": 0,
        }  # fmt: skip
        if kind in values:
            return values[kind]
    if kind == "hidden_grid_dims":
        return max(1, sum(size > 1 for size in grid))
    return lds_bytes if kind == "hidden_dynamic_lds_size" else 0


def _pack_naturally(device: Device, values: Sequence[Any], size: int, uploads: Uploads) -> bytes:
    data = bytearray()
    for index, value in enumerate(values):
        part = _encode(device, f"args[{index}]", value, None, uploads)
        align = min(1 << max(len(part) - 1, 0).bit_length(), 16)
        data += bytes(-len(data) % align) + part
    if size and len(data) > size:
        raise LaunchError.argument("args", f"{len(data)} bytes", f"{size} bytes, as .amdhsa_kernarg_size says")
    return bytes(data) + bytes(max(0, size - len(data)))


def _encode(device: Device, name: str, value: Any, size: int | None, uploads: Uploads) -> bytes:
    data: bytes
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise LaunchError.argument(name, value, "an array of numbers, and none of objects")
        buffer = device.buffer(value, name=name)
        uploads.append((value, buffer))
        value = buffer
    if value is None:
        data = bytes(8)
    elif hasattr(value, "address"):
        data = int(value.address).to_bytes(8, "little")
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    elif isinstance(value, np.generic):
        data = value.tobytes()
    elif isinstance(value, bool | int):
        width = 8 * (size or 4)
        if not -(1 << width - 1) <= value < 1 << width:
            raise LaunchError.argument(name, value, f"an integer of {width} bits")
        data = (value & ((1 << width) - 1)).to_bytes(width // 8, "little")
    elif isinstance(value, float) and size in (None, 4, 8):
        data = np.array(value, f"f{size or 4}").tobytes()
    else:
        raise LaunchError.argument(name, type(value).__name__, "a Buffer, an array, a scalar or bytes")
    if size is not None and len(data) != size:
        raise LaunchError.argument(name, f"{len(data)} bytes ({type(value).__name__})", f"{size} bytes")
    return data
