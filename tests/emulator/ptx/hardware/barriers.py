"""Barriers of the CTA: counts, reductions, several at once, arrivals without waiting."""

from __future__ import annotations

from collections.abc import Iterator

from tests.emulator.ptx.hardware.cases import LANES, Case, operand, threads_case


def cases() -> Iterator[Case]:
    """Every case of named barriers."""
    for block in (32, 96, 256):
        for how in ("popc", "and", "or"):
            for sign in ("", "!"):
                yield _reduction(how, sign, block, "bar", f"{how} {'negated ' if sign else ''}of {block}")
    yield _reduction("popc", "", 256, "barrier.cta", "popc of 256 by barrier.cta")
    yield _reduction("and", "", 128, "bar", "and of equal flags", equal=True)
    yield _reduction("or", "!", 128, "bar", "or of equal flags, negated", equal=True)
    for pairs in (1, 2, 4):
        yield _exchange(pairs)
    for wave in (1, 5):
        yield _producer(wave)
    yield _some_warps()


def _reduction(how: str, sign: str, block: int, opcode: str, label: str, *, equal: bool = False) -> Case:
    """Three reductions in a row, over flags of another bit of the operand each."""
    data = operand("b32", label, 0, block)
    if equal:
        data = data * 0 + 0b101
    body = [".reg .b32 v, bit, got, sum; .reg .pred p, q; ld.global.b32 v, [at_a]; mov.b32 sum, 0;"]
    for number in range(3):
        body.append(f"shr.u32 bit, v, {number}; and.b32 bit, bit, 1; setp.ne.u32 p, bit, 0;")
        if how == "popc":
            body.append(f"{opcode}.red.popc.u32 got, {number}, {sign}p;")
        else:
            body.append(f"{opcode}.red.{how}.pred q, {number}, {sign}p; selp.b32 got, {3 + number}, 0, q;")
        body.append("mad.lo.u32 sum, sum, 1000, got;")
    body.append("st.global.b32 [out], sum;")
    return threads_case("barrier", f"bar.red {label}", body, 4, {"a": data}, block=block)


def _exchange(pairs: int) -> Case:
    """Warps swap words with their neighbour over a barrier of their own, `pairs` times."""
    label = f"barriers of 64 threads, {pairs} exchanges"
    data = operand("b32", label, 0)
    body = [
        ".reg .b32 v, w, id, mine, other; ld.global.b32 v, [at_a]; shr.u32 id, tid, 6; add.u32 id, id, 1;",
        "mad.lo.u32 mine, tid, 4, s; xor.b32 other, tid, 63; mad.lo.u32 other, other, 4, s;",
    ]
    for _ in range(pairs):
        body.append("st.shared.b32 [mine], v; bar.sync id, 64; ld.shared.b32 w, [other]; bar.sync id, 64;")
        body.append("mad.lo.u32 v, v, 5, w;")
    body.append("st.global.b32 [out], v;")
    return threads_case("barrier", label, body, 4, {"a": data}, shared_bytes=4 * LANES)


def _producer(turns: int) -> Case:
    """Half of the threads fill a buffer and arrive on one barrier; the others wait, read, and arrive on the other."""
    label = f"bar.arrive from producers to consumers, {turns} turns"
    data = operand("b32", label, 0)
    body = [
        ".reg .b32 v, w, turn; .reg .pred consumer, more; ld.global.b32 v, [at_a]; mov.b32 turn, 0;",
        "and.b32 w, tid, 127; mad.lo.u32 s, w, 4, s; setp.ge.u32 consumer, tid, 128; @consumer bra consume;",
        "produce: add.u32 w, v, turn; st.shared.b32 [s], w; bar.arrive 1, 256; bar.sync 2, 256;",
        f"add.u32 turn, turn, 1; setp.lt.u32 more, turn, {turns}; @more bra produce; bra done;",
        "consume: bar.sync 1, 256; ld.shared.b32 w, [s]; bar.arrive 2, 256; mad.lo.u32 v, v, 3, w;",
        f"add.u32 turn, turn, 1; setp.lt.u32 more, turn, {turns}; @more bra consume;",
        "done: st.global.b32 [out], v;",
    ]
    return threads_case("barrier", label, body, 4, {"a": data}, shared_bytes=512)


def _some_warps() -> Case:
    """Three of eight warps meet; the others go on."""
    label = "a barrier of three warps out of eight"
    data = operand("b32", label, 0)
    body = [
        ".reg .b32 v, w, warp; .reg .pred p, q, inside; ld.global.b32 v, [at_a]; shr.u32 warp, tid, 5;",
        "shr.u32 w, 0x2c, warp; and.b32 w, w, 1; setp.ne.u32 inside, w, 0; mov.b32 w, 77; @!inside bra done;",
        "setp.lt.u32 p, v, 0x80000000; bar.red.popc.u32 w, 3, 96, p;",
        "done: st.global.b32 [out], w;",
    ]
    return threads_case("barrier", label, body, 4, {"a": data})
