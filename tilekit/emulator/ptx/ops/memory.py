"""Loads, stores and prefetches (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable

from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, all_sources, form, never
from tilekit.emulator.ptx.language.independent import differs_between_warps
from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    AddressOperand,
    Operand,
    RegisterOperand,
    Sink,
    SymbolOperand,
    VectorOperand,
)
from tilekit.emulator.ptx.memory import access
from tilekit.emulator.ptx.memory.stores import store_together

HINTS = (
    "l1=L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate? "
    "l2=L2::evict_normal|L2::evict_first|L2::evict_last? hint=L2::cache_hint? prefetch=L2::64B|L2::128B|L2::256B?"
)
CACHE = f"level=ca|cg|cs|lu|cv? {HINTS}"
SCOPE = "scope=cta|cluster|gpu|sys?"
_TYPES = "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"


def address_space(g: BlockCompiler, i: Decoded, operand: Operand) -> str:
    """State space of an access; call frames (``.param`` of functions) live in local memory."""
    base = operand.base if isinstance(operand, AddressOperand) else operand
    if isinstance(base, SymbolOperand) and base.variable.space == "frame":
        return "local"
    space = i.get("space", "generic").replace("param::entry", "param").replace("param::func", "param")
    return "shared" if space == "shared::cta" else space


def address_kind(g: BlockCompiler, operand: Operand) -> str:
    """Type in which an address operand's register holds its address."""
    base = operand.base if isinstance(operand, AddressOperand) else operand
    if isinstance(base, RegisterOperand):
        if base.register.bits not in (32, 64):
            raise g.fail(f"the address register {base.register.name} must have 32 or 64 bits")
        return f"u{base.register.bits}"
    return "u64"


def scalar_address(g: BlockCompiler, operand: Operand) -> str:
    """Expression of a uniform address, as a Python integer; a 32-bit one wraps, as those of lanes do."""
    assert isinstance(operand, AddressOperand)
    kind = address_kind(g, operand)
    text = g.scalar(operand.base, kind)
    if not operand.addend:
        return text
    return f"({text} + {operand.addend}) & 0xFFFFFFFF" if kind == "u32" else f"{text} + {operand.addend}"


def array_address(g: BlockCompiler, operand: Operand) -> str:
    """Expression of per-lane addresses."""
    assert isinstance(operand, AddressOperand)
    kind = address_kind(g, operand)
    text = g.array(operand.base, kind)
    if not operand.addend:
        return text
    bits = int(kind[1:])
    return f"{text} + uint{bits}({operand.addend & ((1 << bits) - 1)})"


def uniform_load(decoded: Decoded, uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
    """A load from one address gives one value; local memory differs between lanes even at one address."""
    if decoded.get("space") == "local":
        return (False,) * len(decoded.defs)
    return all_sources(decoded, uniform)


def strength(i: Decoded) -> str | None:
    """Memory order of an access: None for a weak one; a volatile one counts as relaxed."""
    written = i.get("order")
    return None if written in ("", "weak") else {"volatile": "relaxed"}.get(written, written)


def _parts(d: Operand) -> tuple[Operand, ...]:
    return d.items if isinstance(d, VectorOperand) else (d,)


@form(
    "ld",
    f"mmio? order=weak|relaxed|acquire|volatile? {SCOPE} space=$S? nc? {CACHE} vec=v2|v4|v8? unified? type={_TYPES}",
    "dv [a] a?",
    uniform=uniform_load,
)
@form("ldu", f"space=global? vec=v2|v4? type={_TYPES}", "dv [a]", uniform=uniform_load)
def load(g: BlockCompiler, i: Decoded) -> None:
    """``ld``: one load of the warp where the address is uniform."""
    d, a = i.operands[:2]
    kind = _storage(i["type"])
    width = TYPE_BYTES[i["type"]]
    parts = _parts(d)
    _check_vector(g, i, parts)
    order = strength(i)
    space = address_space(g, i, a)
    g.place()
    name = g.temporary()
    if space == "local":
        address = array_address(g, a)
        g.emit(f"{name} = {g.helper(access.load_local)}(w, {address}, {width}, {len(parts)}, {g.mask()})")
    elif g.is_uniform(a) and (g.program.warps == 1 or not differs_between_warps(i)):
        address = scalar_address(g, a)
        call = f"{g.helper(access.load_uniform)}(w, {space!r}, {address}, {width}, {len(parts)}, {g.mask()}, {order!r})"
        if g.condition is not None:
            zero = "0" if len(parts) == 1 else f"[0] * {len(parts)}"
            call = f"{call} if count_nonzero({g.condition}) else {zero}"
        g.emit(f"{name} = {_parameter(g, a, width, len(parts)) or call}")
        for index, part in enumerate(parts):
            if not isinstance(part, Sink):
                value = name if len(parts) == 1 else f"{name}[{index}]"
                _write_scalar(g, part, kind, value)
        return
    else:
        address = array_address(g, a)
        call = f"{g.helper(access.load_lanes)}(w, {space!r}, {address}, {width}, {len(parts)}, {g.mask()}, {order!r})"
        if g.condition is not None:
            shape = g.program.lanes if len(parts) == 1 else (len(parts), g.program.lanes)
            call = f"{call} if count_nonzero({g.condition}) else np.zeros({shape}, 'u{width}')"
        g.emit(f"{name} = {call}")
    for index, part in enumerate(parts):
        if not isinstance(part, Sink):
            _write_lanes(g, part, kind, name if len(parts) == 1 else f"{name}[{index}]")


def _parameter(g: BlockCompiler, operand: Operand, width: int, count: int) -> str:
    """Expression of a load from a place in the parameter block that is known, and legal; otherwise empty."""
    base = operand.base if isinstance(operand, AddressOperand) else operand
    if not isinstance(base, SymbolOperand) or base.variable.space != "param":
        return ""
    last = g.program.function.parameters[-1]
    offset = base.variable.offset + base.addend + (operand.addend if isinstance(operand, AddressOperand) else 0)
    if not 0 <= offset <= last.offset + last.size - width * count or offset % (width * count):
        return ""
    view, first = f"w.cta.launch.parameters.views[{width}]", offset // width
    return f"{view}.item({first})" if count == 1 else f"{view}[{first}:{first + count}].tolist()"


@form(
    "ld",
    f"order=weak|relaxed|acquire|volatile? {SCOPE} space=$S? nc? {CACHE} unified? type=b128",
    "d [a] a?",
    uniform=never,
)
@form("ldu", "space=global? type=b128", "d [a]", uniform=never)
def load_wide(g: BlockCompiler, i: Decoded) -> None:
    """``ld.b128``: kept as two 64-bit halves."""
    d, a = i.operands[:2]
    name = g.temporary()
    g.place()
    space, order = address_space(g, i, a), strength(i)
    call = f"{g.helper(access.load_lanes)}(w, {space!r}, {array_address(g, a)}, 8, 2, {g.mask()}, {order!r})"
    if g.condition is not None:
        call += f" if count_nonzero({g.condition}) else np.zeros((2, {g.program.lanes}), 'u8')"
    g.emit(f"{name} = {call}")
    g.write(d, "b128", name)


@form(
    "st",
    f"order=weak|relaxed|release|volatile? {SCOPE} space=$S? level=wb|cg|cs|wt? {HINTS} type=b128",
    "[a] a a?",
)
def store_wide(g: BlockCompiler, i: Decoded) -> None:
    """``st.b128``."""
    a, source = i.operands[:2]
    name = g.temporary()
    g.place()
    space, order = address_space(g, i, a), strength(i)
    g.emit(f"{name} = {g.array(source, 'b128')}")
    values = f"({name}[0], {name}[1])"
    g.effect(f"{g.helper(access.store_lanes)}(w, {space!r}, {array_address(g, a)}, {values}, 8, {g.mask()}, {order!r})")


def _storage(kind: str) -> str:
    """Type of an integer pattern that carries the value: sign matters for s8, s16, s32 only."""
    return kind if kind[0] == "s" else f"u{TYPE_BYTES[kind] * 8}"


def _check_vector(g: BlockCompiler, i: Decoded, parts: tuple[Operand, ...]) -> None:
    wanted = int(i.get("vec", "v1")[1:])
    if len(parts) != wanted:
        raise g.fail(f"the operand has {len(parts)} elements, the instruction {wanted}")
    limit = 32 if wanted == 8 or (wanted == 4 and TYPE_BYTES[i["type"]] == 8) else 16
    if wanted * TYPE_BYTES[i["type"]] > limit:
        raise g.fail(f"a vector access of {wanted} elements moves at most {limit} bytes")


def _write_scalar(g: BlockCompiler, part: Operand, kind: str, value: str) -> None:
    bits = int(kind[1:])
    if bits == 8 or kind[0] == "s":
        extended = f"signed{bits}({value})" if kind[0] == "s" else value
        assert isinstance(part, RegisterOperand)
        target = part.register.bits
        g.write(part, f"b{target}", f"{extended} & {hex((1 << target) - 1)}", scalar=True)
    else:
        g.write(part, kind, value, scalar=True, wider=True)


def _write_lanes(g: BlockCompiler, part: Operand, kind: str, value: str) -> None:
    bits = int(kind[1:])
    if kind[0] == "s":
        value = f"{value}.view(np.int{bits})"
    if bits == 8 and byte_register(part) == "b16":
        kind, value = f"{kind[0]}16", f"{value}.astype({'' if kind[0] == 's' else 'u'}int16)"
    g.write(part, kind if bits > 8 or kind[-2:] == "16" else "b8", value, wider=True)


def byte_register(operand: Operand) -> str:
    """Type in which to read or write a byte: registers have 16 bits at least, but for those of narrow formats."""
    return "b8" if isinstance(operand, RegisterOperand) and operand.register.bits == 8 else "b16"


@form(
    "st",
    f"mmio? order=weak|relaxed|release|volatile? {SCOPE} space=$S? level=wb|cg|cs|wt? {HINTS} vec=v2|v4|v8? "
    f"type={_TYPES}",
    "[a] av a?",
)
def store(g: BlockCompiler, i: Decoded) -> None:
    """``st``."""
    a, source = i.operands[:2]
    width = TYPE_BYTES[i["type"]]
    parts = _parts(source)
    _check_vector(g, i, parts)
    order = strength(i)
    space = address_space(g, i, a)
    if order is None and space != "local" and g.stores_later() and not _one_store(g, a, parts):
        call = f"{g.helper(store_together)}(w, {space!r}, {width}, {len(parts)}"
        g.store_later(call, array_address(g, a), parts, lambda: _lane_values(g, parts, i["type"]))
        return
    g.place()
    if space == "local":
        values = ", ".join(_lane_values(g, parts, i["type"]))
        g.effect(f"{g.helper(access.store_local)}(w, {array_address(g, a)}, ({values},), {width}, {g.mask()})")
    elif _one_store(g, a, parts):
        kinds = [byte_register(part) if width == 1 else f"u{width * 8}" for part in parts]
        mask = hex((1 << 8 * width) - 1)
        texts = ", ".join(
            f"{g.scalar(part, kind, wider=True)} & {mask}" for part, kind in zip(parts, kinds, strict=True)
        )
        g.effect(
            f"{g.helper(access.store_uniform)}(w, {space!r}, {scalar_address(g, a)}, ({texts},), {width}, {g.mask()}, "
            f"{order!r})"
        )
    else:
        values = ", ".join(_lane_values(g, parts, i["type"]))
        address = array_address(g, a)
        call = f"{g.helper(access.store_lanes)}(w, {space!r}, {address}, ({values},), {width}, {g.mask()}, {order!r})"
        g.effect(call)


def _one_store(g: BlockCompiler, address: Operand, parts: tuple[Operand, ...]) -> bool:
    """Whether all lanes store the same to one address."""
    return g.program.warps == 1 and g.is_uniform(address) and g.sources_uniform(*parts)


def _lane_values(g: BlockCompiler, parts: tuple[Operand, ...], kind: str) -> list[str]:
    """Expressions of the unsigned arrays that a store of a type takes."""
    width = TYPE_BYTES[kind]
    texts = []
    for part in parts:
        if width == 1:
            texts.append(f"{g.array(part, byte_register(part), wider=True)}.astype(np.uint8)")
        else:
            storage = kind if kind in ("f32", "f64") else f"u{width * 8}"
            text = g.array(part, storage, wider=True)
            texts.append(f"{text}.view(uint{width * 8})" if storage in ("f32", "f64") else text)
    return texts


@form("prefetch", "space=global|local|const|param? level=L1|L2|L2::evict_last|L2::evict_normal|tensormap", "[a]")
@form("prefetchu", "level=L1", "[a]")
@form("discard", "space=global? level=L2", "[a] #")
@form("applypriority", "space=global? level=L2::evict_normal", "[a] #")
def prefetch(g: BlockCompiler, i: Decoded) -> None:
    """``prefetch``, ``applypriority``, ``discard``: hints that change no result."""


@form(
    "createpolicy",
    "mode=fractional level=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
    "second=L2::evict_unchanged|L2::evict_first? type=b64",
    "d a?",
)
@form(
    "createpolicy",
    "mode=range space=global? level=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
    "second=L2::evict_unchanged|L2::evict_first? type=b64",
    "d [a] a a",
)
@form("createpolicy", "mode=cvt cache=L2 type=b64", "d a")
def create_policy(g: BlockCompiler, i: Decoded) -> None:
    """``createpolicy``: an opaque cache policy, the constant that compilers use for its kind."""
    kinds = {"evict_first": 0x12F0000000000000, "evict_last": 0x14F0000000000000}
    value = kinds.get(i.get("level").rpartition("::")[2], 0x1000000000000000)
    g.write(i.operands[0], "b64", str(value), scalar=True)
