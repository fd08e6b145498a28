"""LDS instructions: reads, writes, pairs of them, transposing reads, atomics."""

from __future__ import annotations

import re

import numpy as np

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction, Operand
from tilekit.emulator.gcn.memory.kinds import Atomic, Form
from tilekit.emulator.gcn.ops.table import op

_READS = {
    "b32": Form(4),
    "b64": Form(8, 2),
    "b96": Form(12, 3),
    "b128": Form(16, 4),
    "u8": Form(1),
    "i8": Form(1, signed=True),
    "u16": Form(2),
    "i16": Form(2, signed=True),
    "u8_d16": Form(1, part=1),
    "u8_d16_hi": Form(1, part=2),
    "i8_d16": Form(1, signed=True, part=1),
    "i8_d16_hi": Form(1, signed=True, part=2),
    "u16_d16": Form(2, part=1),
    "u16_d16_hi": Form(2, part=2),
}
_WRITES = {
    "b32": Form(4),
    "b64": Form(8, 2),
    "b96": Form(12, 3),
    "b128": Form(16, 4),
    "b8": Form(1),
    "b16": Form(2),
    "b8_d16_hi": Form(1, part=2),
    "b16_d16_hi": Form(2, part=2),
}


def _offset(i: Instruction, name: str = "offset", most: int = 65535) -> int:
    value = i.modifiers.get(name, 0)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise unsupported(i, f"has {name}:{value}; legal: 0 to {most}")
    return value


def _address(e: Emitter, operand: Operand, offset: int) -> str:
    """The address in each lane: sums wrap at 32 bits, so that a register may be below zero."""
    number = e.vector(operand, 1)
    return f"(U[{number}] + {e.constant(np.uint32(offset))}).astype(i8)" if offset else f"U[{number}].astype(i8)"


@op(*(f"ds_read_{name}" for name in _READS))
def read(e: Emitter, i: Instruction) -> None:
    """Read LDS."""
    form = _READS[i.name.removeprefix("ds_read_")]
    e.begin(i, ())
    target = e.vector(i.operands[0], form.registers)
    address = _address(e, i.operands[1], _offset(i))
    e.add(f"B.lds_read({e.name(i, 'i')}, {e.name(form, 'form')}, {address}, {target}, {e.lanes})")


@op(*(f"ds_write_{name}" for name in _WRITES))
def write(e: Emitter, i: Instruction) -> None:
    """Write LDS."""
    form = _WRITES[i.name.removeprefix("ds_write_")]
    e.begin(i, ())
    data = e.vector(i.operands[1], form.registers)
    address = _address(e, i.operands[0], _offset(i))
    e.add(f"B.lds_write({e.name(i, 'i')}, {e.name(form, 'form')}, ({address},), ({data},), {e.lanes})")


_PAIR = re.compile(r"(2|2st64)_(b32|b64)$")


def _pair(i: Instruction) -> tuple[Form, int, int]:
    match = _PAIR.search(i.name)
    assert match is not None
    form = Form(4) if match[2] == "b32" else Form(8, 2)
    step = form.size * (64 if match[1] == "2st64" else 1)
    return form, _offset(i, "offset0", 255) * step, _offset(i, "offset1", 255) * step


@op(*(f"ds_read{kind}_{size}" for kind in ("2", "2st64") for size in ("b32", "b64")))
def read_pair(e: Emitter, i: Instruction) -> None:
    """Read LDS at two places."""
    form, first, second = _pair(i)
    e.begin(i, ())
    target = e.vector(i.operands[0], 2 * form.registers)
    places = ", ".join(_address(e, i.operands[1], offset) for offset in (first, second))
    e.add(f"B.lds_read_pair({e.name(i, 'i')}, {e.name(form, 'form')}, {places}, {target}, {e.lanes})")


@op(*(f"ds_write{kind}_{size}" for kind in ("2", "2st64") for size in ("b32", "b64")))
def write_pair(e: Emitter, i: Instruction) -> None:
    """Write LDS at two places."""
    form, first, second = _pair(i)
    e.begin(i, ())
    data = [e.vector(operand, form.registers) for operand in i.operands[1:3]]
    places = ", ".join(_address(e, i.operands[0], offset) for offset in (first, second))
    e.add(f"B.lds_write({e.name(i, 'i')}, {e.name(form, 'form')}, ({places}), ({data[0]}, {data[1]}), {e.lanes})")


@op("ds_read_b64_tr_b16", "ds_read_b64_tr_b8", "ds_read_b64_tr_b4", "ds_read_b96_tr_b6")
def read_transposed(e: Emitter, i: Instruction) -> None:
    """Read a block of a matrix by columns: gfx950."""
    bits = int(i.name.rsplit("b", 1)[1])
    e.begin(i, ())
    e.only_on("gfx950")
    target = e.vector(i.operands[0], 3 if bits == 6 else 2)
    address = _address(e, i.operands[1], _offset(i))
    e.add(f"B.lds_read_transposed({e.name(i, 'i')}, {bits}, {address}, {target}, {e.lanes})")


_ATOMICS: dict[str, Atomic] = {}
for _size, _suffix in (("4", "32"), ("8", "64")):
    for _name, _type in (
        ("add", "u"),
        ("sub", "u"),
        ("inc", "u"),
        ("dec", "u"),
        ("min", "i"),
        ("max", "i"),
        ("min", "u"),
        ("max", "u"),
    ):
        _ATOMICS[f"{_name}_{_type}{_suffix}"] = Atomic(_name, f"{_type}{_size}")
    for _name in ("and", "or", "xor", "cmpst"):
        _ATOMICS[f"{_name}_b{_suffix}"] = Atomic("cmpswap" if _name == "cmpst" else _name, f"u{_size}")
    for _name in ("add", "min", "max"):
        _ATOMICS[f"{_name}_f{_suffix}"] = Atomic(_name, f"f{_size}")
_ATOMICS["pk_add_f16"], _ATOMICS["pk_add_bf16"] = Atomic("add", "pair_f16"), Atomic("add", "pair_bf16")
_RETURNING = {
    **{(f"{name[: name.rindex('_')]}_rtn_{name[name.rindex('_') + 1 :]}"): form for name, form in _ATOMICS.items()},
    "wrxchg_rtn_b32": Atomic("swap", "u4"),
    "wrxchg_rtn_b64": Atomic("swap", "u8"),
}


@op(*(f"ds_{name}" for name in (*_ATOMICS, *_RETURNING)))
def atomic(e: Emitter, i: Instruction) -> None:
    """Change LDS in one step; ``_rtn`` gives the value before."""
    name = i.name.removeprefix("ds_")
    returns = name in _RETURNING
    form = _RETURNING[name] if returns else _ATOMICS[name]
    e.begin(i, ())
    operands = list(i.operands)
    target = str(e.vector(operands.pop(0), form.registers)) if returns else "None"
    data = [e.vector(operand, form.registers) for operand in operands[1:]]
    if len(data) != 1 + form.compares:
        raise unsupported(i, "does not have these operands")
    if form.compares:  # LDS takes the value to compare with first, global memory last
        data.reverse()
    address = _address(e, operands[0], _offset(i))
    e.add(f"B.lds_atomic({e.name(i, 'i')}, {e.name(form, 'form')}, {address}, {tuple(data)}, {target}, {e.lanes})")
