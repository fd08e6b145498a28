"""mbarriers: what waits and counts give after random but legal sequences of arrivals, drops and announced bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.emulator.ptx.hardware.cases import Case, generator, operand, threads_case


def cases() -> Iterator[Case]:
    """Every mbarrier case."""
    for number in range(24):
        yield _script(number, transactions=False)
    for number in range(24, 44):
        yield _script(number, transactions=True)
    for count in (1, 2, 32, 1000, (1 << 20) - 1):
        yield _pending(count)
    for block in (32, 64, 256):
        for how in ("token", "parity", "try_wait"):
            yield _meeting(block, how)
    yield _ring(3, 8)
    yield _ring(2, 7)


@dataclass
class _Model:
    """What is pending, so that a random sequence stays legal."""

    count: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    tokens: list[int] = field(default_factory=list)
    """The phase of each token taken."""

    def __post_init__(self) -> None:
        self.pending = self.count

    def settle(self) -> None:
        """Complete the phase when nothing is pending."""
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count


def _script(number: int, *, transactions: bool) -> Case:
    """One thread does 40 steps; each writes what it learned to its word of the output."""
    label = f"random steps {number}{' with bytes' if transactions else ''}"
    random = generator(label)
    model = _Model(int(random.integers(1, 7)))
    lines: list[str] = [f"mbarrier.init.shared.b64 [s], {model.count};"]
    results = 0

    def record(text: str) -> None:
        nonlocal results
        lines.append(f"{text} st.global.b32 [out + {4 * results}], r;")
        results += 1

    def token() -> str:
        model.tokens.append(model.phase)
        lines.append(f".reg .b64 state{len(model.tokens)};")
        return f"state{len(model.tokens)}"

    while results < 32 and len(lines) < 90:
        step = random.choice(["arrive", "arrive", "part", "drop", "bytes", "ready", "token", "parity", "pending"])
        if step == "arrive" and model.pending:
            arrivals = int(random.integers(1, model.pending + 1))
            lines.append(f"mbarrier.arrive.shared.b64 {token()}, [s], {arrivals};")
            model.pending -= arrivals
            model.settle()
        elif step == "part" and model.pending > 1:
            arrivals = int(random.integers(1, model.pending))
            lines.append(f"mbarrier.arrive.noComplete.shared.b64 {token()}, [s], {arrivals};")
            model.pending -= arrivals
        elif step == "drop" and model.pending and model.count > 1:
            lines.append(f"mbarrier.arrive_drop.shared.b64 {token()}, [s];")
            model.pending -= 1
            model.count -= 1
            model.settle()
        elif step == "bytes" and transactions and model.pending > 0:
            size = int(random.integers(1, 5000))
            if random.random() < 0.5:
                lines.append(f"mbarrier.arrive.expect_tx.shared.b64 {token()}, [s], {size};")
                model.pending -= 1
            else:
                lines.append(f"mbarrier.expect_tx.relaxed.cta.shared.b64 [s], {size};")
            model.bytes += size
        elif step == "ready" and model.bytes:
            size = int(random.integers(1, model.bytes + 1)) if random.random() < 0.3 else model.bytes
            lines.append(f"mbarrier.complete_tx.relaxed.cta.shared.b64 [s], {size};")
            model.bytes -= size
            model.settle()
        elif step == "token" and model.tokens and model.phase - model.tokens[-1] <= 1:
            finished = model.tokens[-1] < model.phase  # A try_wait for the current phase would be suspended.
            which = "try_wait" if finished and random.random() < 0.5 else "test_wait"
            record(f"mbarrier.{which}.shared.b64 p, [s], state{len(model.tokens)}; selp.b32 r, 21, 20, p;")
        elif step == "parity":
            parity = int(random.integers(0, 2))
            record(f"mbarrier.test_wait.parity.shared.b64 p, [s], {parity}; selp.b32 r, 11, 10, p;")
        elif step == "pending" and model.tokens:
            record(f"mbarrier.pending_count.b64 r, state{len(model.tokens)};")
    if model.bytes:
        lines.append(f"mbarrier.complete_tx.relaxed.cta.shared.b64 [s], {model.bytes};")
    body = [
        ".reg .b32 r; .reg .pred p, others; setp.ne.u32 others, tid, 0; @others bra done;",
        *lines,
        "mbarrier.inval.shared.b64 [s]; done:",
    ]
    return threads_case("mbarrier", label, body, 128, block=32, shared_bytes=16)


def _pending(count: int) -> Case:
    """Counts as far as they go, on two barriers at once."""
    label = f"pending counts from {count}"
    steps = [1, count // 2, count // 3, count]
    body = [".reg .b32 r; .reg .pred p, others; .reg .b64 state; setp.ne.u32 others, tid, 0; @others bra done;"]
    body.append(f"mbarrier.init.shared.b64 [s], {count}; mbarrier.init.shared.b64 [s + 8], {count};")
    left = count
    for index, step in enumerate(steps):
        arrivals = min(max(step, 1), left)
        body.append(
            f"mbarrier.arrive.shared.b64 state, [s + {8 * (index % 2)}], {arrivals if index % 2 == 0 else 1}; "
            f"mbarrier.pending_count.b64 r, state; st.global.b32 [out + {8 * index}], r; "
            f"mbarrier.test_wait.shared.b64 p, [s + {8 * (index % 2)}], state; selp.b32 r, 1, 0, p; "
            f"st.global.b32 [out + {8 * index + 4}], r;"
        )
        if index % 2 == 0:
            left = left - arrivals or count
    body.append("done:")
    return threads_case("mbarrier", label, body, 32, block=32, shared_bytes=16)


def _meeting(block: int, how: str) -> Case:
    """All threads write, arrive and wait; then each reads what another wrote."""
    label = f"meeting of {block} threads by {how}"
    data = operand("b32", label, 0, block)
    wait = {
        "token": "mbarrier.test_wait.shared.b64 p, [s], state;",
        "parity": "mbarrier.test_wait.parity.shared.b64 p, [s], turn;",
        "try_wait": "mbarrier.try_wait.shared.b64 p, [s], state;",
    }[how]
    body = [
        ".reg .b32 v, w, turn, mine, other; .reg .pred p, first; .reg .b64 state; ld.global.b32 v, [at_a];",
        "add.u32 mine, s, 16; mad.lo.u32 mine, tid, 4, mine; mov.b32 turn, 0;",
        f"add.u32 other, s, 16; xor.b32 w, tid, {block - 1}; mad.lo.u32 other, w, 4, other;",
        f"setp.eq.u32 first, tid, 0; @first mbarrier.init.shared.b64 [s], {block}; bar.sync 0;",
        "again: st.shared.b32 [mine], v; mbarrier.arrive.shared.b64 state, [s];",
        f"waiting: {wait} @!p bra waiting; ld.shared.b32 w, [other]; mad.lo.u32 v, v, 7, w; bar.sync 0;",
        "add.u32 turn, turn, 1; setp.lt.u32 p, turn, 2; @p bra again; st.global.b32 [out], v;",
    ]
    return threads_case("mbarrier", label, body, 4, {"a": data}, block=block, shared_bytes=16 + 4 * block)


def _ring(stages: int, turns: int) -> Case:
    """A producing and a consuming warp over a ring of stages, full and empty barriers."""
    label = f"ring of {stages} stages, {turns} turns"
    data = operand("b32", label, 0, 64)
    body = [
        ".reg .b32 v, w, turn, stage, parity, at, word; .reg .pred p, first, consumer; ld.global.b32 v, [at_a];",
        "setp.eq.u32 first, tid, 0; mov.b32 turn, 0; mov.b32 stage, 0; mov.b32 parity, 0; and.b32 w, tid, 31;",
        f"mad.lo.u32 word, w, 4, s; add.u32 word, word, {16 * stages}; setp.ge.u32 consumer, tid, 32;",
        *(f"@first mbarrier.init.shared.b64 [s + {8 * i}], 32;" for i in range(2 * stages)),
        "bar.sync 0; @consumer bra consume;",
        "produce: mad.lo.u32 at, stage, 8, s; xor.b32 w, parity, 1;",
        f"wait1: mbarrier.test_wait.parity.shared.b64 p, [at + {8 * stages}], w; @!p bra wait1;",
        "mad.lo.u32 w, stage, 128, word; add.u32 v, v, turn; st.shared.b32 [w], v;",
        "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [at]; }",
        f"add.u32 turn, turn, 1; add.u32 stage, stage, 1; setp.eq.u32 p, stage, {stages}; @p mov.b32 stage, 0;",
        f"@p xor.b32 parity, parity, 1; setp.lt.u32 p, turn, {turns}; @p bra produce; bra done;",
        "consume: mad.lo.u32 at, stage, 8, s;",
        "wait2: mbarrier.test_wait.parity.shared.b64 p, [at], parity; @!p bra wait2;",
        "mad.lo.u32 w, stage, 128, word; ld.shared.b32 w, [w]; mad.lo.u32 v, v, 3, w;",
        f"{{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [at + {8 * stages}]; }}",
        f"add.u32 turn, turn, 1; add.u32 stage, stage, 1; setp.eq.u32 p, stage, {stages}; @p mov.b32 stage, 0;",
        f"@p xor.b32 parity, parity, 1; setp.lt.u32 p, turn, {turns}; @p bra consume;",
        "done: st.global.b32 [out], v;",
    ]
    return threads_case("mbarrier", label, body, 4, {"a": data}, block=64, shared_bytes=16 * stages + 128 * stages)
