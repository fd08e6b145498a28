"""Loops for the cycle model, written after public descriptions: their instructions in their order, nothing computed.

Each function gives AMDGCN text that LLVM assembles: what stands before the loop, and the loop. Addresses are not
meaningful, and registers only as far as they decide what waits for what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MFMA = {16: "v_mfma_f32_16x16x32_bf16", 8: "v_mfma_f32_16x16x128_f8f6f4"}
"""By bits of a factor."""
READ = "ds_read_b128 v[{at}:{last}], v250"
TRANSPOSED = "ds_read_b64_tr_b16 v[{at}:{last}], v250"
LOAD = "buffer_load_dwordx4 v251, s[8:11], 0 offen lds"


def text(before: Iterable[str], turn: Iterable[str], label: str = "turn") -> str:
    """A loop with what stands before it."""
    ending = ["s_sub_u32 s4, s4, 1", "s_cmp_lg_u32 s4, 0", f"s_cbranch_scc1 {label}", "s_endpgm"]
    body = [f"  {line}" for line in turn]
    return "\n".join(
        ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', ".text", "start:", *(f"  {line}" for line in before),
         f"{label}:", *body, *(f"  {line}" for line in ending), ""]
    )  # fmt: skip


def mfma(number: int, bits: int = 16, accumulators: int = 64) -> str:
    """One of a row of MFMAs, each on its own accumulator of four registers."""
    at = 4 * (number % accumulators)
    width = 4 if bits == 16 else 8
    a, b = 8 * (number // 8 % 4), 32 + 8 * (number % 8)
    factors = f"v[{a}:{a + width - 1}], v[{b}:{b + width - 1}]"
    return f"{MFMA[bits]} a[{at}:{at + 3}], {factors}, a[{at}:{at + 3}]"


def reads(count: int, first: int = 128) -> list[str]:
    """Reads of LDS, into registers that no MFMA here writes."""
    return [READ.format(at=first + 4 * (n % 16), last=first + 3 + 4 * (n % 16)) for n in range(count)]


def loads(count: int) -> list[str]:
    """Loads to LDS, each with its M0."""
    return [line for _ in range(count) for line in ("s_add_u32 m0, m0, 0x420", LOAD)]


def woven(products: Sequence[str], others: Sequence[Sequence[str]]) -> list[str]:
    """Products with other instructions spread evenly between them: groups that stay together."""
    out, placed = [], 0
    for number, product in enumerate(products, 1):
        out.append(product)
        due = len(others) * number // len(products)
        for group in others[placed:due]:
            out += group
        placed = due
    return out


def pairs(lines: Sequence[str]) -> list[list[str]]:
    """A load with its M0, as a group."""
    return [list(lines[at : at + 2]) for at in range(0, len(lines), 2)]


# -- what LDS does ---------------------------------------------------------------------------------------------------


def lds_reads(count: int = 32) -> str:
    """Nothing but reads of LDS."""
    return text([], [READ.format(at=4 * n, last=4 * n + 3) for n in range(count)])


# -- the ladder of the f16 matmul: 256x256x64, four waves, one a SIMD --------------------------------------------------


def prefetched() -> str:
    """v4 of the ladder: loads of the next k-block, reads of this one, its MFMAs, each in a row."""
    turn = [
        *loads(16),
        "s_waitcnt vmcnt(16)",
        "s_barrier",
        *reads(32),
        "s_waitcnt lgkmcnt(0)",
        *(mfma(n) for n in range(128)),
        "s_barrier",
    ]
    return text(loads(16), turn)


def prefetched_twice() -> str:
    """v5 of the ladder, as LLVM orders it: MFMAs, the loads of two k-blocks on, the reads of the next."""
    turn = [
        *(mfma(n) for n in range(128)),
        "s_waitcnt vmcnt(0)",
        "s_barrier",
        *loads(16),
        *reads(32),
        "s_waitcnt lgkmcnt(0)",
    ]
    return text(loads(32), turn)


def sliced(rows: int = 256, columns: int = 256, bits: int = 16, stages: int = 2) -> str:
    """v8 and v9 of the ladder: a quarter of the products a region, with reads and loads woven in; two k-blocks a turn.

    Region by region the second half of A, that of B, then the first halves of the next k-block are read, and the halves
    of the next but one loaded. So five regions' loads may be outstanding with two stages, and four more with each more.
    """
    a_loads, b_loads, a_reads, b_reads = rows // 64, columns // 64, rows // 32, columns // 32
    deeper = (stages - 2) * 2 * (a_loads + b_loads)
    regions = (
        (a_reads, b_loads, deeper + 3 * b_loads + 2 * a_loads),
        (b_reads, a_loads, deeper + 3 * b_loads + 2 * a_loads),
        (b_reads, a_loads, deeper + 3 * a_loads + 2 * b_loads),
        (a_reads, b_loads, deeper + 3 * a_loads + 2 * b_loads),
    )
    count = rows * columns // 2048 // (2 if bits == 8 else 1)
    turn: list[str] = []
    for region in range(8):
        reading, loading, outstanding = regions[region % 4]
        each = count // (1 if bits == 8 else 2)
        products = [mfma(each * (region % 4) + (n if bits == 8 else n // 2), bits) for n in range(count)]
        turn += [f"s_waitcnt vmcnt({outstanding}) lgkmcnt(0)", "s_barrier"]
        turn += woven(products[: count // 2], [[line] for line in reads(reading)])
        turn += woven(products[count // 2 :], pairs(loads(loading)))
    return text(loads(2 * stages * (a_loads + b_loads)), turn)


# -- eight waves, two a SIMD -----------------------------------------------------------------------------------------


def _offset() -> list[str]:
    """Waves 4 to 7 pass one barrier more before the loop."""
    return [
        "v_lshrrev_b32_e32 v255, 8, v0",
        "v_readfirstlane_b32 s5, v255",
        "s_cmp_eq_u32 s5, 0",
        "s_cbranch_scc1 together",
        "s_barrier",
    ]


def _ping_pong(turn: Sequence[str], before: Sequence[str] = ()) -> str:
    whole = text([*before, *_offset(), "TOGETHER"], turn)
    return whole.replace("  TOGETHER", "together:")


def ping_pong(bits: int = 16, wide: bool = False) -> str:
    """Recipe B, and the ladder's kernel of eight waves: 256x256x64 in four quadrants, two k-blocks a turn.

    Parameters
    ----------
    bits
        Of a factor.
    wide
        Whether the memory half has the higher priority, as in the ladder; else the products' half, as in HipKittens.
    """
    turn: list[str] = []
    for phase in range(8):
        memory = [*reads((8, 4, 8, 4)[phase % 4]), *loads(2)]  # a half of A, or of B
        products = [mfma(8 * (phase % 4) + (n // 2 if bits == 16 else n % 8), bits, 32) for n in range(16)]
        low, high = ("s_setprio 0", "s_setprio 1")
        turn += [high if wide else low, *memory]
        turn += [*(["s_waitcnt vmcnt(6)"] if phase % 4 == 3 else []), "s_barrier", "s_waitcnt lgkmcnt(0)"]
        turn += [low if wide else high, *products, "s_barrier"]
    return _ping_pong(turn, loads(14))


def producers(rows: int, columns: int, consumers: int, loaders: int = 4) -> str:
    """Warp specialisation: four waves load, and others, each with 64x64 of the tile, read and multiply a k-block."""
    share = (rows + columns) * 64 * 2 // 1024 // loaders
    products = rows * columns // (16 * 16) * 2 // consumers
    reading = (64 // 16 + 64 // 16) * 2
    consume = [
        "s_barrier",
        *reads(reading),
        "s_waitcnt lgkmcnt(0)",
        "s_setprio 1",
        *(mfma(n, accumulators=32) for n in range(products)),
        "s_setprio 0",
    ]
    produce = [*loads(share), f"s_waitcnt vmcnt({share})", "s_barrier"]
    whole = [
        "v_lshrrev_b32_e32 v255, 6, v0",
        "v_readfirstlane_b32 s5, v255",
        f"s_cmp_ge_u32 s5, {consumers}",
        "s_cbranch_scc1 produce",
    ]
    ending = ["s_sub_u32 s4, s4, 1", "s_cmp_lg_u32 s4, 0"]
    again = [*ending, "s_cbranch_scc1 produce_turn", "s_endpgm"]
    produced = ["produce:", *loads(share), "produce_turn:", *produce, *again]
    consumed = text(whole, consume)
    lines = "\n".join(line if line.endswith(":") else f"  {line}" for line in produced)
    return f"{consumed}{lines}\n"


# -- attention: d = 128, KV tile 64, eight waves of 32 rows -----------------------------------------------------------


def _product(number: int, first: int) -> str:
    at = first + 16 * (number % 4)
    factor = 4 * (number % 8)
    return f"v_mfma_f32_32x32x16_bf16 v[{at}:{at + 15}], v[{factor}:{factor + 3}], v[32:35], v[{at}:{at + 15}]"


def _vector(kind: str, number: int) -> str:
    at = 200 + 2 * (number % 20)
    one, two = f"v{at}", f"v[{at}:{at + 1}]"
    return {
        "add": f"v_add_f32_e32 {one}, v240, {one}",
        "sub": f"v_sub_f32_e32 {one}, {one}, v241",
        "mul": f"v_mul_f32_e32 {one}, v242, {one}",
        "max": f"v_max3_f32 {one}, {one}, v243, v244",
        "exp": f"v_exp_f32_e32 {one}, {one}",
        "cvt": f"v_cvt_pk_f16_f32 {one}, {one}, v245",
        "pk_mul": f"v_pk_mul_f32 {two}, {two}, v[246:247]",
        "pk_add": f"v_pk_add_f32 {two}, {two}, v[246:247]",
    }[kind]


def _dot(first: int, covered: dict[str, int], exposed: dict[str, int]) -> list[str]:
    """A cluster of 16 MFMAs: vector work ahead of it, and in the shadow of each."""
    every = [_vector(kind, n) for kind, count in covered.items() for n in range(count)]
    costs = [8 if line.startswith("v_exp") else 4 for line in every]
    lines = [_vector(kind, n) for kind, count in exposed.items() for n in range(count)]
    total, spent, place = sum(costs), 0, 0
    for number in range(16):
        lines.append(_product(number, first))
        while place < len(every) and spent + costs[place] <= total * (number + 1) / 16:
            lines.append(every[place])
            spent += costs[place]
            place += 1
    return [*lines, *every[place:]]


def attention(lazy: bool) -> str:
    """fav4 (lazy rescale) and fav3 of the tutorials: vector work in the shadow of the MFMAs, as their budgets say."""
    if lazy:
        scores = ({"add": 32, "cvt": 16, "sub": 12, "exp": 12}, {})
        values = ({"max": 16, "sub": 20, "exp": 20}, {})
    else:
        scores = ({"cvt": 16, "add": 32, "mul": 48}, {"pk_mul": 8})
        values = ({"max": 16, "exp": 32, "sub": 16}, {"pk_add": 8})
    turn: list[str] = []
    for _ in range(2):
        for (covered, exposed), first, memory in (
            (scores, 36, reads(16)),
            (
                values,
                100,
                [TRANSPOSED.format(at=128 + 2 * n, last=129 + 2 * n) for n in range(32)],
            ),
        ):
            turn += ["s_setprio 1", "s_nop 1", *memory, *loads(2), "s_waitcnt vmcnt(4) lgkmcnt(0)", "s_barrier"]
            turn += ["s_setprio 0", *_dot(first, covered, exposed), "s_barrier"]
    return _ping_pong(turn, loads(8))
