"""Sixteen bytes of an operand into four registers, by the widest loads that its address and pitch allow."""

from __future__ import annotations

from collections.abc import Callable

from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.gemv.spec import VECTOR

CHUNK_REGISTERS = VECTOR // 4


def load_chunk(
    w: Writer,
    registers: RegisterTile,
    address: Value,
    *,
    offset: int,
    access: int,
    valid: Callable[[int], Value],
    l2_bytes: int | None,
) -> None:
    """Start the loads of the 16 bytes at `address` + `offset`; bytes that are not there become zeros.

    Parameters
    ----------
    registers
        Four b32, overwritten.
    access
        Bytes of one load.
    valid
        Whether the load that begins at this byte of the chunk may be made; a load is made whole or not at all.
    l2_bytes
        For what is read once: what L2 fetches around it. None for what is read again and stays in L1.
    """
    where = {"address": address}
    if access == VECTOR:
        values = {f"v{i}": register for i, register in enumerate(registers)}
        if l2_bytes is None:
            w.ptx.stream.load_often(**values, **where, offset=offset, valid=valid(0))
        else:
            w.ptx.stream.load_once(**values, **where, offset=offset, valid=valid(0), l2=l2_bytes)
    elif access == 8:
        for i in (0, 2):
            pair = {"v0": registers[i], "v1": registers[i + 1]}
            w.ptx.stream.load_b64(**pair, **where, offset=offset + 4 * i, valid=valid(4 * i))
    elif access == 4:
        for i, register in enumerate(registers):
            w.ptx.stream.load_b32(v0=register, **where, offset=offset + 4 * i, valid=valid(4 * i))
    else:
        load = w.ptx.stream.load_b16 if access == 2 else w.ptx.stream.load_b8
        for i, register in enumerate(registers):
            parts = [
                load(**where, offset=offset + byte, valid=valid(byte)) << 8 * (byte - 4 * i)
                for byte in range(4 * i, 4 * i + 4, access)
            ]
            packed = parts[0]
            for part in parts[1:]:
                packed = packed | part
            register.assign(packed)
