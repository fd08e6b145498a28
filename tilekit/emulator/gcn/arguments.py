"""The arguments of a launch as bytes of its kernarg segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.dimensions import Dim3
from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.memory.buffer import Buffer, Uploads
from tilekit.emulator.gcn.abi import hidden_argument, is_hidden, unlisted_fit
from tilekit.emulator.gcn.language.syntax import Argument

if TYPE_CHECKING:
    from tilekit.emulator.gcn.device import Device

__all__ = ["pack"]


def pack(
    device: Device, kernel: str, arguments: list[Argument] | None, size: int, values: Sequence[Any], grid: Dim3,
    block: Dim3, dynamic_lds: int,
) -> tuple[bytes, Uploads]:  # fmt: skip
    """Return the kernarg segment, and the arrays that were uploaded for it.

    With the kernel's metadata each value must fit its argument, and hidden arguments are filled in; without, values
    follow each other with their natural alignment.

    Raises
    ------
    LaunchError
        If the values are not those of the kernel: too few, too many, of another size or kind.
    """
    uploads: Uploads = []
    try:
        if arguments is None:
            return _pack_naturally(device, kernel, values, size, uploads), uploads
        return _pack_listed(device, kernel, arguments, size, values, grid, block, dynamic_lds, uploads), uploads
    except LaunchError:
        for _, buffer in uploads:
            buffer.free()
        raise


def _pack_listed(
    device: Device, kernel: str, arguments: list[Argument], size: int, values: Sequence[Any], grid: Dim3, block: Dim3,
    dynamic_lds: int, uploads: Uploads,
) -> bytes:  # fmt: skip
    explicit = [argument for argument in arguments if not is_hidden(argument.kind)]
    if len(values) != len(explicit):
        listed = ", ".join(f"{a.name or index} ({a.kind}, {a.size} B)" for index, a in enumerate(explicit)) or "nothing"
        raise LaunchError(
            f"{len(values)} arguments for the {len(explicit)} parameters of kernel '{kernel}'",
            hint=f"it takes {listed}",
            details={"given": len(values), "expected": len(explicit)},
        )
    data = bytearray(max(size, max((a.offset + a.size for a in arguments), default=0)))
    for index, (value, argument) in enumerate(zip(values, explicit, strict=True)):
        name = f"args[{index}]"
        if argument.kind == "global_buffer" and isinstance(value, float | np.floating | np.bool_ | bool):
            legal = f"a Buffer, an array, an address or None: {argument.name or 'it'} is a pointer to global memory"
            raise LaunchError.argument(name, value, legal)
        part = _encode(device, name, value, argument.size, uploads)
        data[argument.offset : argument.offset + argument.size] = part
    for argument in arguments:
        if is_hidden(argument.kind):
            hidden = hidden_argument(argument.kind, grid, block, dynamic_lds) & ((1 << 8 * argument.size) - 1)
            data[argument.offset : argument.offset + argument.size] = hidden.to_bytes(argument.size, "little")
    return bytes(data)


def _pack_naturally(device: Device, kernel: str, values: Sequence[Any], size: int, uploads: Uploads) -> bytes:
    data = bytearray()
    for index, value in enumerate(values):
        part = _encode(device, f"args[{index}]", value, None, uploads)
        align = min(1 << max(len(part) - 1, 0).bit_length(), 16)
        data += bytes(-len(data) % align) + part
    if size and not unlisted_fit(len(data), size):
        legal = f"{size} bytes, as .amdhsa_kernarg_size of {kernel} says, less its padding"
        raise LaunchError.argument("args", f"{len(data)} bytes", legal)
    return bytes(data) + bytes(max(0, size - len(data)))


def _encode(device: Device, name: str, value: Any, size: int | None, uploads: Uploads) -> bytes:
    data: bytes
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise LaunchError.argument(name, value, "an array of numbers, and none of objects")
        buffer = device.buffer(value, name=name, writable=value.flags.writeable)
        uploads.append((value, buffer))
        value = buffer
    if value is None:
        data = bytes(8)
    elif isinstance(value, Buffer):
        data = value.address.to_bytes(8, "little")
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
