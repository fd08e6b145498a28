"""Loads, stores and atomics: what generated code asks of :mod:`tilekit.emulator.gcn.memory`."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction, Off, Operand, Register
from tilekit.emulator.gcn.memory.kinds import ATOMICS, FORMS, atomic_form
from tilekit.emulator.gcn.ops.table import op

_COUNTED = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}


@op(*(f"s_load_{size}" for size in _COUNTED), *(f"s_buffer_load_{size}" for size in _COUNTED if size != "dwordx3"))
def scalar_load(e: Emitter, i: Instruction) -> None:
    """Load scalar registers."""
    count = _COUNTED[i.name.rsplit("_", 1)[1]]
    target, base = i.operands[:2]
    buffer = i.name.startswith("s_buffer")
    if not isinstance(target, Register) or target.file != "s" or target.count != count:
        raise unsupported(i, f"needs {count} scalar registers")
    if not isinstance(base, Register) or base.file != "s" or base.count != (4 if buffer else 2):
        raise unsupported(i, f"needs {'four' if buffer else 'a pair of'} scalar registers as its base")
    e.begin(i, ())
    offset = e.scalar(i.operands[2]) if len(i.operands) > 2 else "0"
    if "offset" in i.modifiers:
        offset += f" + {i.modifiers['offset']}"
    if buffer:
        e.add(f"B.scalar_buffer_load({e.name(i, 'i')}, B.resource({base.first}), {offset}, {target.first}, {count})")
    else:
        e.add(f"B.scalar_load({e.name(i, 'i')}, number(wide(S, {base.first})), {offset}, {target.first}, {count})")


def _scalar_place(e: Emitter, i: Instruction, count: int) -> tuple[int, str]:
    """The first data register of a scalar store or atomic, and where it goes: base, offset, limit of the offset."""
    data, base = i.operands[:2]
    buffer = i.name.startswith("s_buffer")
    if not isinstance(data, Register) or data.file != "s" or data.count != count:
        raise unsupported(i, f"needs {count} scalar register{'s' * (count > 1)}")
    if not isinstance(base, Register) or base.file != "s" or base.count != (4 if buffer else 2):
        raise unsupported(i, f"needs {'four' if buffer else 'a pair of'} scalar registers as its base")
    e.begin(i, ())
    offset = e.scalar(i.operands[2]) if len(i.operands) > 2 else "0"
    if "offset" in i.modifiers:
        offset += f" + {i.modifiers['offset']}"
    if buffer:
        e.add(f"r = B.resource({base.first})")
    return data.first, f"r.base, {offset}, r.records" if buffer else f"number(wide(S, {base.first})), {offset}, None"


@op(*(f"s_{kind}store_{size}" for kind in ("", "buffer_") for size in ("dword", "dwordx2", "dwordx4")))
def scalar_store(e: Emitter, i: Instruction) -> None:
    """Store scalar registers."""
    count = _COUNTED[i.name.rsplit("_", 1)[1]]
    data, where = _scalar_place(e, i, count)
    base, offset, limit = where.rsplit(", ", 2)
    e.add(f"B.scalar_store({e.name(i, 'i')}, {base}, {offset}, {data}, {count}, {limit})")


_SCALAR_ATOMICS = [name for name in ATOMICS if not name.startswith(("add_f", "min_f", "max_f", "pk_"))]


@op(*(f"s_{kind}atomic_{name}" for kind in ("", "buffer_") for name in _SCALAR_ATOMICS))
def scalar_atomic(e: Emitter, i: Instruction) -> None:
    """Change memory in one step, once a wave; with ``glc`` the value before comes back."""
    form = atomic_form(i.name.split("atomic_")[1])
    data, where = _scalar_place(e, i, form.registers * (2 if form.compares else 1))
    base, offset, limit = where.rsplit(", ", 2)
    returns = i.flag("glc") or i.flag("sc0")
    e.add(f"B.scalar_atomic({e.name(i, 'i')}, {e.name(form, 'form')}, {base}, {offset}, {data}, {returns}, {limit})")


def _address(e: Emitter, i: Instruction, vector: Operand, base: Operand) -> str:
    """The 64-bit address in each lane of a global access."""
    offset = i.modifiers.get("offset", 0)
    if isinstance(base, Off):
        number = e.vector(vector, 2)
        return f"pair(U[{number}], U[{number + 1}]).view(i8) + {offset}"
    if not isinstance(base, Register) or base.count != 2:
        raise unsupported(i, "needs a pair of scalar registers or 'off' as its base")
    number = e.vector(vector, 1)
    return f"U[{number}] + v64(number({e.scalar64(base)})).view(i8) + {offset}"


@op(*(f"{space}_load_{name}" for space in ("global", "flat") for name in FORMS))
def load(e: Emitter, i: Instruction) -> None:
    """Load from global memory, or by a flat address."""
    form = FORMS[i.name.split("_load_")[1]]
    flat = i.name.startswith("flat")
    if len(i.operands) != (2 if flat else 3):
        raise unsupported(i, f"takes {2 if flat else 3} operands")
    e.begin(i, ())
    target = e.vector(i.operands[0], form.registers)
    address = _address(e, i, i.operands[1], Off() if flat else i.operands[2])
    what = f"{e.name(i, 'i')}, {e.name(form, 'form')}, {address}, {target}, {e.lanes}"
    e.add(f"B.{'flat' if flat else 'global'}_load({what})")


@op(*(f"{space}_store_{name}" for space in ("global", "flat") for name in FORMS if not name.startswith("s")),
    *(f"{space}_store_{name}" for space in ("global", "flat") for name in ("short", "short_d16_hi", "byte",
                                                                           "byte_d16_hi")))  # fmt: skip
def store(e: Emitter, i: Instruction) -> None:
    """Store to global memory, or by a flat address."""
    form = FORMS[_stored(i.name.split("_store_")[1])]
    flat = i.name.startswith("flat")
    if len(i.operands) != (2 if flat else 3):
        raise unsupported(i, f"takes {2 if flat else 3} operands")
    e.begin(i, ())
    data = e.vector(i.operands[1], form.registers)
    address = _address(e, i, i.operands[0], Off() if flat else i.operands[2])
    what = f"{e.name(i, 'i')}, {e.name(form, 'form')}, {address}, {data}, {e.lanes}"
    e.add(f"B.{'flat' if flat else 'global'}_store({what})")


def _stored(name: str) -> str:
    return {"short": "ushort", "byte": "ubyte", "short_d16_hi": "short_d16_hi", "byte_d16_hi": "ubyte_d16_hi"}.get(
        name, name
    )


@op(*(f"{space}_atomic_{name}" for space in ("global", "flat") for name in ATOMICS))
def atomic(e: Emitter, i: Instruction) -> None:
    """Change global memory in one step; with ``sc0`` the value before comes back."""
    form = atomic_form(i.name.split("_atomic_")[1])
    flat = i.name.startswith("flat")
    operands = list(i.operands)
    returns = len(operands) == (3 if flat else 4)
    if returns != i.flag("sc0") or len(operands) not in ((2, 3) if flat else (3, 4)):
        raise unsupported(i, "needs sc0 exactly where it has a destination")
    e.begin(i, ())
    target = str(e.vector(operands.pop(0), form.registers)) if returns else "None"
    data = e.vector(operands[1], form.registers * (2 if form.compares else 1))
    address = _address(e, i, operands[0], Off() if flat else operands[2])
    what = f"{e.name(i, 'i')}, {e.name(form, 'form')}, {address}, {data}, {target}, {e.lanes}"
    e.add(f"B.{'flat' if flat else 'global'}_atomic({what})")


_LDS_SIZES = {"dword": 4, "dwordx3": 12, "dwordx4": 16, "ushort": 2, "sshort": 2, "ubyte": 1, "sbyte": 1}


@op(*(f"global_load_lds_{name}" for name in _LDS_SIZES))
def load_to_lds(e: Emitter, i: Instruction) -> None:
    """Load from global memory to LDS, where M0 says."""
    e.begin(i, ())
    address = _address(e, i, i.operands[0], i.operands[1])
    size = _LDS_SIZES[i.name.removeprefix("global_load_lds_")]
    e.check_lds_size(size)
    e.add(f"B.global_to_lds({e.name(i, 'i')}, {size}, {address}, S[124], {i.modifiers.get('offset', 0)}, {e.lanes})")


# -- buffers ---------------------------------------------------------------------------------------------------------


def _buffer_offset(e: Emitter, i: Instruction, vector: Operand) -> tuple[str, str]:
    """The offset that lanes give, without the scalar one, and the index."""
    offset = i.modifiers.get("offset", 0)
    if not 0 <= offset <= 4095:
        raise unsupported(i, f"has offset:{offset}; legal: 0 to 4095")
    offen, idxen = i.flag("offen"), i.flag("idxen")
    if not offen and not idxen:
        return f"K0 + {offset}" if offset else "K0", "None"
    number = e.vector(vector, offen + idxen)
    index = f"U[{number}]" if idxen else "None"
    lanes = f"U[{number + idxen}].astype(i8)" if offen else "K0"
    return (f"{lanes} + {offset}" if offset else lanes), index


def _resource(e: Emitter, i: Instruction, operand: Operand) -> str:
    if not isinstance(operand, Register) or operand.file != "s" or operand.count != 4 or operand.first % 4:
        raise unsupported(i, "needs four scalar registers, the first a multiple of four, as its buffer descriptor")
    return f"B.resource({operand.first})"


@op(*(f"buffer_load_{name}" for name in FORMS))
def buffer_load(e: Emitter, i: Instruction) -> None:
    """Load from a buffer, to registers or to LDS."""
    form = FORMS[i.name.removeprefix("buffer_load_")]
    e.begin(i, ())
    operands = list(i.operands)
    lds = i.flag("lds")
    if len(operands) != (3 if lds else 4):
        raise unsupported(i, f"takes {3 if lds else 4} operands")
    target = 0 if lds else e.vector(operands.pop(0), form.registers)
    lanes, index = _buffer_offset(e, i, operands[0])
    where = f"{_resource(e, i, operands[1])}, {lanes}, {index}, {e.scalar(operands[2])}"
    if lds:
        e.check_lds_size(form.size)
        e.add(
            f"B.buffer_to_lds({e.name(i, 'i')}, {form.size}, {where}, S[124], "
            f"{i.modifiers.get('offset', 0)}, {e.lanes})"
        )
    else:
        e.add(f"B.buffer_load({e.name(i, 'i')}, {e.name(form, 'form')}, {where}, {target}, {e.lanes})")


@op(*(f"buffer_store_{name}" for name in ("dword", "dwordx2", "dwordx3", "dwordx4", "short", "byte", "short_d16_hi",
                                          "byte_d16_hi")))  # fmt: skip
def buffer_store(e: Emitter, i: Instruction) -> None:
    """Store to a buffer."""
    form = FORMS[_stored(i.name.removeprefix("buffer_store_"))]
    e.begin(i, ())
    data = e.vector(i.operands[0], form.registers)
    lanes, index = _buffer_offset(e, i, i.operands[1])
    where = f"{_resource(e, i, i.operands[2])}, {lanes}, {index}, {e.scalar(i.operands[3])}"
    e.add(f"B.buffer_store({e.name(i, 'i')}, {e.name(form, 'form')}, {where}, {data}, {e.lanes})")


@op(*(f"buffer_atomic_{name}" for name in ATOMICS))
def buffer_atomic(e: Emitter, i: Instruction) -> None:
    """Change a buffer in one step."""
    form = atomic_form(i.name.removeprefix("buffer_atomic_"))
    e.begin(i, ())
    data = e.vector(i.operands[0], form.registers * (2 if form.compares else 1))
    target = str(data) if i.flag("sc0") else "None"
    lanes, index = _buffer_offset(e, i, i.operands[1])
    where = f"{_resource(e, i, i.operands[2])}, {lanes}, {index}, {e.scalar(i.operands[3])}"
    e.add(f"B.buffer_atomic({e.name(i, 'i')}, {e.name(form, 'form')}, {where}, {data}, {target}, {e.lanes})")


@op("buffer_inv")
def invalidate(e: Emitter, i: Instruction) -> None:
    """Acquire: later loads see what others released."""
    e.begin(i, ())
    e.add("B.acquire()")


@op("buffer_wbl2")
def write_back(e: Emitter, i: Instruction) -> None:
    """Release: counts as a store that has to be waited for."""
    e.begin(i, ())
    e.add(f"B.write_back({e.name(i, 'i')})")


# -- scratch ---------------------------------------------------------------------------------------------------------


def _scratch(e: Emitter, i: Instruction, vector: Operand, base: Operand) -> str:
    parts = [str(i.modifiers.get("offset", 0))]
    if not isinstance(vector, Off):
        parts.append(f"U[{e.vector(vector, 1)}].astype(i8)")
    if not isinstance(base, Off):
        parts.append(e.scalar(base))
    return " + ".join(parts)


@op(*(f"scratch_load_{name}" for name in FORMS))
def scratch_load(e: Emitter, i: Instruction) -> None:
    """Load from a lane's own memory."""
    form = FORMS[i.name.removeprefix("scratch_load_")]
    e.begin(i, ())
    target = e.vector(i.operands[0], form.registers)
    where = _scratch(e, i, i.operands[1], i.operands[2])
    e.add(f"B.scratch_load({e.name(i, 'i')}, {e.name(form, 'form')}, {where}, {target}, {e.lanes})")


@op(*(f"scratch_store_{name}" for name in ("dword", "dwordx2", "dwordx3", "dwordx4", "short", "byte", "short_d16_hi",
                                           "byte_d16_hi")))  # fmt: skip
def scratch_store(e: Emitter, i: Instruction) -> None:
    """Store to a lane's own memory."""
    form = FORMS[_stored(i.name.removeprefix("scratch_store_"))]
    e.begin(i, ())
    where = _scratch(e, i, i.operands[0], i.operands[2])
    data = e.vector(i.operands[1], form.registers)
    e.add(f"B.scratch_store({e.name(i, 'i')}, {e.name(form, 'form')}, {where}, {data}, {e.lanes})")
