"""Forms that few kernels use: each does what the manual says, and ptxas takes its spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchError, MemoryFault, UnsupportedInstruction
from tilekit.emulator.core.arithmetic.formats import decode, encode, encode_randomly

Array = np.ndarray[Any, Any]


def run(body: str, assemble: Any, *, data: Array | None = None, target: str = "sm_90a") -> tuple[Array, Array]:
    """Run a body that leaves a u32 in %r, with 32 lanes' data behind %p; the values and the data afterwards."""
    text = f"""
.version 9.2
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data)
{{
  .reg .b32 %r, %t, %u, %v, %x; .reg .pred %p1, %p2; .reg .b64 %o, %a, %p, %q; .reg .b128 %w, %y, %z;
  .reg .b16 %h, %i; .reg .f32 %f, %g; .reg .b8 %b; .shared .align 16 .b8 buffer[1024];
  mov.u32 %t, %tid.x; ld.param.u64 %p, [data]; mov.u32 %r, 0;
  {body}
  ld.param.u64 %o, [out]; mul.wide.u32 %a, %t, 4; add.s64 %o, %o, %a; st.global.u32 [%o], %r;
  ret;
}}
"""
    assemble(text)
    out = np.zeros(32, np.uint32)
    data = np.arange(256, dtype=np.uint32) if data is None else data
    Device(target).load(text)["k"].launch(1, 32, [out, data])
    return out, data


def test_guarded_indexed_branch(assemble: Any) -> None:
    """Lanes where the guard of brx.idx does not hold go on behind it."""
    body = """
  targets: .branchtargets one, two;
  and.b32 %u, %t, 1; setp.lt.u32 %p1, %t, {limit};
  @%p1 brx.idx %u, targets;
  mov.u32 %r, 9; bra done;
one: mov.u32 %r, 1; bra done;
two: mov.u32 %r, 2;
done:"""
    out, _ = run(body.format(limit=20), assemble)
    assert out.tolist() == [1 + i % 2 if i < 20 else 9 for i in range(32)]
    uniform = body.replace("and.b32 %u, %t, 1;", "mov.u32 %u, 1;").replace("%t, {limit}", "%u, {limit}")
    assert set(run(uniform.format(limit=1), assemble)[0].tolist()) == {9}
    assert set(run(uniform.format(limit=2), assemble)[0].tolist()) == {2}


def test_logic_with_a_predicate(assemble: Any) -> None:
    """lop3.and and lop3.or combine whether the result is not zero with a predicate."""
    body = "and.b32 %u, %t, 3; setp.gt.u32 %p1, %t, 15; lop3.and.b32 %v|%p2, %t, 12, %u, 0xfe, %p1; "
    body += "selp.u32 %r, 1, 0, %p2; lop3.or.b32 _|%p2, %t, 4, 0, 0xc0, %p1; @%p2 add.u32 %r, %r, 10;"
    out, _ = run(body, assemble)
    ored = [(i & 0x1F) | 12 | i & 3 for i in range(32)]
    want = [int(ored[i] != 0 and i > 15) + 10 * int(i & 4 != 0 or i > 15) for i in range(32)]
    assert out.tolist() == want


def test_predicates_of_both_halves(assemble: Any) -> None:
    """A comparison of two halves a register sets one predicate for each; either may be left out."""
    # Lane t has the halves t and 8: the first is greater from lane 9 on, the second wherever t is below 8.
    body = """cvt.rn.f16.u32 %h, %t; mov.u16 %i, 0x4800; mov.b32 %u, {{%h, %i}}; mov.b32 %v, {{%i, %h}};
  setp.gt.f16x2 {results}, %u, %v; @%p1 add.u32 %r, %r, 1; @%p2 add.u32 %r, %r, 10;"""
    clear = "setp.ne.u32 %p1, 0, 0; setp.ne.u32 %p2, 0, 0; "
    for results, first, second in (("%p1|%p2", 1, 10), ("%p1|_", 1, 0), ("_|%p2", 0, 10)):
        out, _ = run(clear + body.format(results=results), assemble)
        assert out.tolist() == [first * (t > 8) + second * (t < 8) for t in range(32)], results


def test_wide_accesses(assemble: Any) -> None:
    """128-bit loads with hints, ldu, memory-mapped accesses, and stores with a cache policy."""
    body = """
  createpolicy.cvt.L2.b64 %q, 0;
  mul.wide.u32 %a, %t, 16; add.u64 %a, %p, %a;
  ld.global.nc.L1::no_allocate.L2::128B.b128 %w, [%a];
  mov.b128 {%o, %q}, %w; cvt.u32.u64 %r, %q;
  ldu.global.b128 %y, [%p]; mov.b128 {%o, %q}, %y; cvt.u32.u64 %u, %o; add.u32 %r, %r, %u;
  ld.mmio.relaxed.sys.global.u32 %u, [%p + 4]; add.u32 %r, %r, %u; bar.warp.sync -1;
  st.mmio.relaxed.sys.global.u32 [%p + 1020], 77;
  createpolicy.fractional.L2::evict_first.b64 %q; st.global.L2::cache_hint.b128 [%a], %y, %q;"""
    data = np.arange(256, dtype=np.uint32)
    data[0] = 1000
    out, after = run(body, assemble, data=data, target="sm_100a")
    assert out.tolist() == [4 * i + 2 + 1000 + 1 for i in range(32)]
    assert after[:128].reshape(32, 4).tolist() == [[1000, 1, 2, 3]] * 32
    assert after[255] == 77


def test_wide_atomics(assemble: Any) -> None:
    """atom.cas.b128 and atom.exch.b128 exchange sixteen bytes at once, lane after lane."""
    body = """
  cvt.u64.u32 %o, %t; mov.u64 %q, 5; mov.b128 %y, {%o, %q}; mov.u64 %a, 0; mov.b128 %z, {%a, %q};
  atom.global.exch.b128 %w, [%p], %y; mov.b128 {%o, %a}, %w; cvt.u32.u64 %r, %o;
  bar.warp.sync -1; cvt.u64.u32 %o, 31; mov.b128 %z, {%o, %q}; mov.u64 %a, 99; mov.b128 %y, {%a, %a};
  atom.global.cas.b128 %w, [%p], %z, %y; mov.b128 {%o, %a}, %w; cvt.u32.u64 %u, %o; mad.lo.u32 %r, %u, 100, %r;"""
    data = np.zeros(256, np.uint32)
    data[0] = 77
    out, after = run(body, assemble, data=data)
    assert [v % 100 for v in out.tolist()] == [77, *range(31)]
    assert sorted(v // 100 for v in out.tolist()) == [31] + [99] * 31
    assert after[:4].tolist() == [99, 0, 99, 0]


def test_out_of_bounds_factors(assemble: Any) -> None:
    """fma.oob gives zero where a factor is the NaN that fills elements outside of a tensor; other NaNs stay."""
    body = """
  mov.b32 %u, 0x3c007ff7; mov.b32 %v, 0x40003c00; mov.b32 %x, 0x3c003c00;
  setp.gt.u32 %p1, %t, 15; @%p1 mov.b32 %u, 0x3c007fff;
  fma.rn.oob.f16x2 %r, %u, %v, %x;"""
    out, _ = run(body, assemble)
    assert set(out[:16].tolist()) == {0x42000000}
    assert set(out[16:].tolist()) == {0x42007FFF}


def test_special_registers(assemble: Any) -> None:
    """Registers that the driver sets or counters fill are zero; the reserved kilobyte has its bounds."""
    body = "mov.u32 %u, %envreg3; mov.u32 %v, %pm0; add.u32 %r, %u, %v; mov.u64 %q, %pm7_64; cvt.u32.u64 %u, %q; "
    body += "add.u32 %r, %r, %u; mov.u32 %u, %reserved_smem_offset_end; add.u32 %r, %r, %u; "
    body += "mov.u64 %q, %current_graph_exec; cvt.u32.u64 %u, %q; add.u32 %r, %r, %u;"
    assert set(run(body, assemble)[0].tolist()) == {1024}


def test_textures_are_refused_by_name() -> None:
    """Texture declarations are read, and the instructions that use them are refused when the text is loaded."""
    text = """.version 8.0
.target sm_80, texmode_unified
.address_size 64
.global .texref image; .global .surfref target;
.visible .entry k(.param .u64 p)
{ .reg .f32 %f<6>; .reg .b32 %r<4>; .reg .b64 %p; ld.param.u64 %p, [p];
  BODY ret; }
"""
    for body in (
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [image, {%f4, %f5}];",
        "tex.1d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [%p, {%r0}];",
        "sust.b.1d.b32.trap [target, {%r0}], {%r1};",
        "suq.width.b32 %r0, [target];",
    ):
        with pytest.raises(UnsupportedInstruction, match="textures, samplers and surfaces") as refusal:
            Device("sm_80").load(text.replace("BODY", body))
        assert str(refusal.value).startswith(f"unsupported instruction: {body.split()[0]}:")


def test_halves_to_narrow_formats(assemble: Any) -> None:
    """Two f16 or bf16 in a register become a packed pair, and bf16 pairs come back exactly."""
    random = np.random.default_rng(4)
    for to in ("e2m1", "e2m3", "e3m2", "e4m3", "e5m2"):
        for kind in ("f16", "bf16") if to[:2] not in ("e4", "e5") else ("bf16",):
            values = (random.standard_normal((32, 2)) * 3).astype(np.float32)
            halves = encode(values, kind)
            data = np.zeros(256, np.uint32)
            data[:32] = halves[:, 0].astype(np.uint32) << 16 | halves[:, 1]
            register, widen = ("%b", "cvt.u32.u8 %r, %b;") if to == "e2m1" else ("%h", "cvt.u32.u16 %r, %h;")
            body = "mul.wide.u32 %a, %t, 4; add.u64 %a, %p, %a; ld.global.u32 %u, [%a]; "
            body += f"cvt.rn.satfinite.relu.{to}x2.{kind}x2 {register}, %u; {widen}"
            back = f"cvt.rn.bf16x2.{to}x2 %r, {register};"
            out, _ = run(body, assemble, data=data, target="sm_100a")
            codes = encode(decode(halves, kind), to, saturate=True, relu=True).astype(np.uint32)
            width = 4 if to == "e2m1" else 8
            assert out.tolist() == (codes[:, 0] << width | codes[:, 1]).tolist()
            out, _ = run(body + back, assemble, data=data, target="sm_100a")
            again = encode(decode(codes.astype(np.uint8), to), "bf16").astype(np.uint32)
            assert out.tolist() == (again[:, 0] << 16 | again[:, 1]).tolist()


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_rounding_by_random_bits(kind: str, assemble: Any) -> None:
    """cvt.rs cuts off with zero bits, rounds up with ones, and hits each side as often as the value is near to it."""
    count = 2 if kind in ("f16", "bf16") else 4
    values = (np.random.default_rng(5).standard_normal(32) * 2).astype(np.float32)
    width = {"e2m1": 4}.get(kind, 32 // count)
    sources = "%f, %g" if count == 2 else "{%f, %g, %f, %g}"
    register, widen = ("%h", "cvt.u32.u16 %r, %h;") if kind == "e2m1" else ("%r", "")
    body = "mul.wide.u32 %a, %t, 4; add.u64 %a, %p, %a; ld.global.f32 %f, [%a]; neg.f32 %g, %f; mov.b32 %x, BITS; "
    body += f"cvt.rs.satfinite.{kind}x{count}.f32 {register}, {sources}, %x; {widen}"
    data = np.zeros(256, np.float32)
    data[:32] = values
    words = data.view(np.uint32)
    for bits, draw in (("0", 0.0), ("0xffffffff", 1 - 2.0 ** -(13 if kind == "f16" else 16))):
        out, _ = run(body.replace("BITS", bits), assemble, data=words.copy(), target="sm_100a")
        draws = np.full(32, draw)
        fields = [encode_randomly(v, kind, draws, saturate=True).astype(np.uint32) for v in (values, -values)]
        want = np.zeros(32, np.uint32)
        for n in range(count):
            want = want << np.uint32(width) | fields[n % 2]
        assert out.tolist() == want.tolist()
        down = encode(values, kind, "rz", saturate=True)
        assert (decode(fields[0], kind) if draw else decode(down, kind)).shape == (32,)
        if not draw:
            assert (fields[0] == down).all()
    draws = np.random.default_rng(6).integers(0, 1 << 16, 4000) / 2.0**16
    one = np.full(4000, 1.3, np.float32)
    rounded = decode(encode_randomly(one, kind, draws), kind)
    assert abs(rounded.mean() - 1.3) < 0.02


def test_byte_registers(assemble: Any) -> None:
    """Registers of eight bits, as narrow formats use them, are loaded, stored, packed and converted."""
    body = """.reg .b8 %c; .reg .b16 %m;
  mul.wide.u32 %a, %t, 4; add.u64 %a, %p, %a; ld.global.b8 %b, [%a]; ld.global.b8 %c, [%a + 1];
  mov.b16 %m, {%b, %c}; mov.b16 {%c, %b}, %m; mov.b32 %u, {%b, %c, %b, %c}; st.global.b8 [%a + 2], %b;
  cvt.u32.u8 %r, %c; shl.b32 %r, %r, 16; xor.b32 %r, %r, %u;"""
    data = np.random.default_rng(3).integers(0, 2**32, 256, np.uint64).astype(np.uint32)
    out, after = run(body, assemble, data=data.copy(), target="sm_100a")
    low, high = data[:32] & 255, data[:32] >> 8 & 255
    packed = high | low << 8 | high << 16 | low << 24
    assert out.tolist() == (packed ^ low << 16).tolist()
    assert (after[:32] >> 16 & 255).tolist() == high.tolist()


def test_groups_of_a_warp_at_once(assemble: Any) -> None:
    """With masks that differ between lanes, each group votes, reduces, elects and matches for itself."""
    values = np.arange(32) * 7 % 11
    groups = [np.flatnonzero(np.arange(32) % 3 == k) for k in range(3)]
    body = """
  rem.u32 %u, %t, 3; mul.lo.u32 %v, %t, 7; rem.u32 %v, %v, 11;
  mov.u32 %x, 0x49249249; shl.b32 %x, %x, %u;  // every third lane
  setp.eq.u32 %p1, %u, 2; @%p1 and.b32 %x, %x, 0x24924924;
  """
    mask = {0: 0x49249249, 1: 0x92492492, 2: 0x24924924}
    for code, reference in (
        ("redux.sync.add.u32 %r, %v, %x;", lambda v: v.sum()),
        ("redux.sync.max.s32 %r, %v, %x;", lambda v: v.max()),
        ("redux.sync.xor.b32 %r, %v, %x;", lambda v: np.bitwise_xor.reduce(v)),
        ("setp.gt.u32 %p1, %v, 8; vote.sync.any.pred %p2, %p1, %x; selp.u32 %r, 1, 0, %p2;", lambda v: (v > 8).any()),
        ("setp.lt.u32 %p1, %v, 10; vote.sync.all.pred %p2, %p1, %x; selp.u32 %r, 1, 0, %p2;", lambda v: (v < 10).all()),
        ("elect.sync %r|%p1, %x; @%p1 add.u32 %r, %r, 100;", None),
        ("match.all.sync.b32 %r|%p1, %u, %x; @!%p1 mov.u32 %r, 5;", "mask"),
        ("setp.gt.u32 %p1, %v, 5; vote.sync.ballot.b32 %r, %p1, %x;", "ballot"),
    ):
        out, _ = run(body + code, assemble)
        for number, lanes in enumerate(groups):
            got = out[lanes].tolist()
            if reference is None:
                assert got == [number + 100] + [number] * (len(lanes) - 1)
            elif reference == "mask":
                assert set(got) == {mask[number]}
            elif reference == "ballot":
                assert set(got) == {sum(1 << int(lane) for lane in lanes if values[lane] > 5)}
            else:
                assert set(got) == {int(reference(values[lanes]))}, code


def test_carry_of_a_subtraction(assemble: Any) -> None:
    """sub.cc leaves a carry for addc where nothing was borrowed, as an addition of the complement does."""
    out, _ = run("sub.cc.u32 %u, %t, 12; addc.u32 %r, 0, 0;", assemble)
    assert out.tolist() == [int(i >= 12) for i in range(32)]
    out, _ = run("mov.u32 %u, 0xfffffff0; add.cc.u32 %u, %t, %u; subc.u32 %r, 5, 0;", assemble)
    assert out.tolist() == [5 if i >= 16 else 4 for i in range(32)]
    out, _ = run("mov.u32 %u, 3; sub.cc.u32 %v, %t, 9; subc.cc.u32 %x, %u, 3; subc.u32 %r, 1, 0;", assemble)
    assert out.tolist() == [1 if i >= 9 else 0 for i in range(32)]


@pytest.mark.parametrize(("position", "length"), [(0, 8), (4, 0), (12, 20), (20, 30), (31, 1), (33, 4), (255, 5)])
def test_bit_fields_at_constant_places(position: int, length: int, assemble: Any) -> None:
    """bfe at constants is bfe at the same numbers in registers: of lanes, of one number for all, of 64 bits."""
    for kind, start in (("%t", "%t"), ("one number", "0")):
        number = f"mad.lo.u32 %x, {start}, 2654435761, 0x9e3779b9;"
        both = [f"bfe.u32 %r, %x, {position}, {length};", f"mov.u32 %u, {position}; mov.u32 %v, {length};"]
        constant, _ = run(f"{number} {both[0]}", assemble)
        register, _ = run(f"{number} {both[1]} bfe.u32 %r, %x, %u, %v;", assemble)
        assert constant.tolist() == register.tolist(), kind


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_division_of_one_number_by_each_lane_s(kind: str, assemble: Any) -> None:
    """A number that all lanes share is divided, and divides, in the type of the instruction."""
    bits, shared = kind[1:], -1000 if kind[0] == "s" else 1000
    registers = ("%x", "%u", "%v") if bits == "32" else ("%q", "%a", "%o")
    each, one, found = registers
    make = f"add.u32 %u, %t, 3; cvt.u64.u32 {each}, %u;" if bits == "64" else f"add.u32 {each}, %t, 3;"
    narrow = f"cvt.u32.u64 %r, {found};" if bits == "64" else f"mov.b32 %r, {found};"
    lanes = np.arange(32) + 3
    quotient, rest = np.trunc(shared / lanes).astype(np.int64), np.fmod(shared, lanes)
    turned, left = np.trunc(lanes / shared).astype(np.int64), np.fmod(lanes, shared)
    for name, operands, wanted in (
        ("div", f"{one}, {each}", quotient),
        ("rem", f"{one}, {each}", rest),
        ("div", f"{each}, {one}", turned),
        ("rem", f"{each}, {one}", left),
    ):
        out, _ = run(f"{make} mov.b{bits} {one}, {shared}; {name}.{kind} {found}, {operands}; {narrow}", assemble)
        assert out.tolist() == (wanted & 0xFFFFFFFF).tolist(), (name, operands)


def test_cooperative_launch() -> None:
    """A cooperative launch has a workspace, gone afterwards; a grid that does not fit is refused."""
    text = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 %l, %h, %c; .reg .b64 %o, %w;
  mov.u32 %l, %envreg2; mov.u32 %h, %envreg1; mov.b64 %w, {%l, %h};
  red.add.u32 [%w+4], 1;
  ld.param.u64 %o, [out]; st.global.u64 [%o], %w;
  ret;
}
"""
    device = Device(multiprocessors=2)
    out = device.buffer(np.zeros(1, np.uint64))
    kernel = device.load(text)["k"]
    assert kernel.launch(4, 32, [out], cooperative=True).clean
    assert out.read()[0] != 0
    assert [allocation.start for allocation in device.memory.allocations()] == [out.address]
    with pytest.raises(LaunchError, match="at most 64 CTAs at once: the grid has 65"):
        kernel.launch(65, 32, [out], cooperative=True)
    with pytest.raises(MemoryFault):
        kernel.launch(1, 32, [out])


@pytest.mark.parametrize(("bytes_", "shift", "fault"), [(64, 0, False), (64, 16, False), (24, 0, True), (64, 8, True)])
def test_bulk_prefetches_have_the_rules_of_copies(assemble: Any, bytes_: int, shift: int, fault: bool) -> None:
    """Sizes and addresses are multiples of 16, though nothing is moved that a result could show."""
    body = f"add.u64 %q, %p, {shift}; mov.u32 %u, {bytes_}; cp.async.bulk.prefetch.L2.global [%q], %u; mov.u32 %r, 1;"
    if fault:
        with pytest.raises(MemoryFault, match=rf"bulk prefetch of {bytes_} bytes at 0x[0-9a-f]+: both must be multip"):
            run(body, assemble)
    else:
        assert set(run(body, assemble)[0].tolist()) == {1}
