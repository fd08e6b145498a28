"""Random kernels: arithmetic of lanes and waves, tiles, LDS, loads and stores, loops and branches, uniform and not.

Each wave works on its own part of LDS and of the output, so what it computes depends on nothing but its number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.assembly.gcn.machine import LANES, Array, Kernel, Machine
from tilekit.assembly.gcn.code import File, Part, Virtual

INPUT_WORDS = 1024
LDS_WORDS = 16  # of a lane
OUTPUT_WORDS = 32  # of a lane

ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "v_add_u32_e32": lambda a, b: a + b,
    "v_sub_u32_e32": lambda a, b: a - b,
    "v_xor_b32_e32": lambda a, b: a ^ b,
    "v_and_b32_e32": lambda a, b: a & b,
    "v_or_b32_e32": lambda a, b: a | b,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_max_u32_e32": np.maximum,
}
SCALAR: dict[str, Callable[[int, int], int]] = {
    "s_add_u32": lambda a, b: a + b,
    "s_sub_u32": lambda a, b: a - b,
    "s_mul_i32": lambda a, b: a * b,
    "s_add_i32": lambda a, b: a + b,
}
RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


@dataclass
class Scope:
    """What may be read here: everything in it has been written in all lanes that come here."""

    vectors: list[Virtual] = field(default_factory=list)
    scalars: list[Virtual] = field(default_factory=list)
    tiles: list[Virtual] = field(default_factory=list)

    def inner(self) -> Scope:
        """A scope inside."""
        return Scope(self.vectors.copy(), self.scalars.copy(), self.tiles.copy())


class RandomKernel(Kernel):
    """A kernel drawn from a seed, of about `size` statements, of which `nesting` are loops and branches."""

    def __init__(self, seed: int, size: int = 40, *, memory: bool = True, nesting: float = 0.2) -> None:
        super().__init__()
        self.nesting = nesting
        self.random = random.Random(seed)
        self.memory = memory
        self.left = size
        self._names = 0
        self._slot = 0
        scope = self._prologue()
        self._body(scope, 0, size)
        for value in self.random.sample(scope.vectors, min(4, len(scope.vectors))):
            self._store(value)
        self.end()

    # -- registers ---------------------------------------------------------------------------------------------------

    def _new(self, file: File, words: int = 1, fixed: int | None = None, name: str = "") -> Virtual:
        self._names += 1
        return Virtual(name or f"{file[0]}{self._names}", file, words, 1, fixed)

    def _target(self, scope: Scope) -> Virtual:
        """A vector to write: a new one, or one that is there."""
        if scope.vectors and self.random.random() < 0.4:
            return self.random.choice(scope.vectors)
        return self._new("vector")

    def _wrote(self, scope: Scope, register: Virtual) -> None:
        into = {"vector": scope.vectors, "scalar": scope.scalars}[register.file]
        if register not in into and register is not self.thread:
            into.append(register)

    # -- begin and end -----------------------------------------------------------------------------------------------

    def _prologue(self) -> Scope:
        scope = Scope()
        self.arguments = self._new("scalar", 2, 0, "arguments")
        self.thread = self._new("vector", 1, 0, "thread")
        self.addresses = self._new("scalar", 4, name="addresses")
        place = self.addresses
        self.inputs, self.output = Part(place, 0, 2), Part(place, 2, 2)
        first = self.thread

        def starts(m: Machine) -> None:
            m.write(Part(first, 0, 1), np.arange(LANES) + LANES * m.number)
            m.put(Part(place, 0, 4), 0, 0, 0, 0)

        self.op("s_load_dwordx4 {0}, {1}, 0x0", (place,), (self.arguments,), starts, counter="lgkmcnt")
        for _ in range(3):
            self._constant(scope)
        for _ in range(2):
            self._scalar_constant(scope)
        own = self._new("vector", name="lds")
        self._binary(own, "v_lshlrev_b32_e32 {0}, 6, {1}", (self.thread,), lambda a: a << 6)
        self.lds = own
        if self.memory:
            zero = self._new("vector", 4, name="zero")
            for word in range(4):
                part = Part(zero, word, 1)
                self.op("v_mov_b32_e32 {0}, 0", (part,), (), lambda m, part=part: m.write(part, np.uint32(0)))
            for group in range(LDS_WORDS // 4):
                self._write_lds(Part(zero, 0, 4), 4 * group)
        return scope

    def _constant(self, scope: Scope) -> None:
        value, number = self._new("vector"), self.random.getrandbits(5)
        thread = Part(self.thread, 0, 1)
        self.op(
            f"v_xor_b32_e32 {{0}}, {number}, {{1}}",
            (value,),
            (self.thread,),
            lambda m: m.write(Part(value, 0, 1), m.read(thread) ^ np.uint32(number)),
        )
        scope.vectors.append(value)

    def _scalar_constant(self, scope: Scope) -> None:
        value, number = self._new("scalar"), self.random.getrandbits(16)
        self.op(f"s_mov_b32 {{0}}, {number}", (value,), (), lambda m: m.put(Part(value, 0, 1), number))
        scope.scalars.append(value)

    # -- statements --------------------------------------------------------------------------------------------------

    def _body(self, scope: Scope, depth: int, size: int) -> None:
        simple = [
            self._vector_op, self._vector_op, self._mixed_op, self._scalar_op, self._select, self._build_tile,
            self._tile_op, self._lane_of, self._long_op, self._again_in_the_same_lanes,
        ]  # fmt: skip
        if self.memory:
            simple += [self._load, self._load, self._load_tile, self._store_any, self._to_lds, self._from_lds]
            simple += [self._from_lds, self._scalar_load, self._store_tile]
        if not self.narrow:
            simple += [self._matrix, self._moved_lanes]
        nested = [self._lane_if, self._lane_if, self._uniform_if, self._uniform_loop, self._lane_loop]
        while size > 0 and self.left > 0:
            size -= 1
            self.left -= 1
            for values, most in ((scope.vectors, 40), (scope.scalars, 20), (scope.tiles, 10)):
                if len(values) > most:  # the kernel has no more use for it
                    values.pop(self.random.randrange(len(values)))
            if depth < 4 and self.random.random() < self.nesting:
                self.random.choice(nested)(scope, depth)
            else:
                self.random.choice(simple)(scope)

    def _binary(self, target: Virtual | Part, text: str, reads: tuple[Virtual, ...], f: Callable[..., Array]) -> None:
        part = target if isinstance(target, Part) else Part(target, 0, 1)
        parts = tuple(Part(r, 0, 1) for r in reads)
        self.op(text, (part,), parts, lambda m: m.write(part, f(*(m.read(p) for p in parts))))

    def _vector_op(self, scope: Scope) -> None:
        a, b = self.random.choices([*scope.vectors, self.thread], k=2)
        name, f = self.random.choice(list(ARITHMETIC.items()))
        target = self._target(scope)
        self._binary(target, f"{name} {{0}}, {{1}}, {{2}}", (a, b), f)
        self._wrote(scope, target)

    def _mixed_op(self, scope: Scope) -> None:
        a, b = self.random.choice(scope.scalars), self.random.choice(scope.vectors)
        name, f = self.random.choice(list(ARITHMETIC.items()))
        target = self._target(scope)
        self._binary(target, f"{name} {{0}}, {{1}}, {{2}}", (a, b), f)
        self._wrote(scope, target)

    def _scalar_op(self, scope: Scope) -> None:
        a, b = (Part(r, 0, 1) for r in self.random.choices(scope.scalars, k=2))
        name, f = self.random.choice(list(SCALAR.items()))
        target = self.random.choice(scope.scalars) if self.random.random() < 0.4 else self._new("scalar")
        part = Part(target, 0, 1)
        self.op(
            f"{name} {{0}}, {{1}}, {{2}}",
            (part,),
            (a, b),
            lambda m: m.put(part, f(int(m.read(a)[0, 0]), int(m.read(b)[0, 0]))),
        )
        self._wrote(scope, target)

    def _long_op(self, scope: Scope) -> None:
        """A pair: the 64-bit product, of which one half is used."""
        a, b = self.random.choices(scope.vectors, k=2)
        pair, target = self._new("vector", 2), self._target(scope)

        def product(m: Machine) -> None:
            x, y = (m.read(Part(r, 0, 1))[0].astype(np.uint64) for r in (a, b))
            z = x * y
            m.write(Part(pair, 0, 2), np.stack([z & np.uint64(0xFFFFFFFF), z >> np.uint64(32)]).astype(np.uint32))

        self.op("v_mad_u64_u32 {0}, vcc, {1}, {2}, 0", (pair,), (a, b), product, changes=("vcc",))
        half = Part(pair, self.random.randrange(2), 1)
        self.op("v_mov_b32_e32 {0}, {1}", (target,), (half,), lambda m: m.write(Part(target, 0, 1), m.read(half)))
        self._wrote(scope, target)

    def _compare(self, scope: Scope, into: Virtual | None) -> None:
        """Compare two vectors: to VCC, or to a pair of scalars; mostly so that lanes differ."""
        first, second = self.random.sample([*scope.vectors, self.thread], k=2)
        name, f = self.random.choice(list(RELATIONS.items()))
        if self.random.random() < 0.5:
            bit, first = 1 << self.random.randrange(6), self._new("vector")
            second, name, f = self.random.choice(scope.vectors), "ge", RELATIONS["ge"]
            self._binary(first, f"v_and_b32_e32 {{0}}, {bit}, {{1}}", (self.thread,), lambda x: x & np.uint32(bit))
            masked = self._new("vector")
            self._binary(masked, f"v_and_b32_e32 {{0}}, {bit}, {{1}}", (second,), lambda x: x & np.uint32(bit))
            second = masked
        a, b = Part(first, 0, 1), Part(second, 0, 1)

        def lanes(m: Machine) -> Array:
            found: Array = (f(m.read(a), m.read(b)) & m.exec)[0]
            return found

        if into is None:

            def to_vcc(m: Machine) -> None:
                m.vcc = lanes(m)

            self.op(f"v_cmp_{name}_u32_e32 vcc, {{0}}, {{1}}", (), (a, b), to_vcc, changes=("vcc",))
        else:
            self.op(f"v_cmp_{name}_u32_e64 {{0}}, {{1}}, {{2}}", (into,), (a, b),
                    lambda m: m.put_mask(Part(into, 0, 2), lanes(m)))  # fmt: skip

    def _select(self, scope: Scope) -> None:
        a, b = (Part(r, 0, 1) for r in self.random.choices(scope.vectors, k=2))
        target, pair = self._target(scope), self._new("scalar", 2) if self.random.random() < 0.5 else None
        part = Part(target, 0, 1)
        self._compare(scope, pair)
        if self.random.random() < 0.3:
            self._vector_op(scope)
        if pair is None:
            self.op("v_cndmask_b32_e32 {0}, {1}, {2}, vcc", (part,), (a, b),
                    lambda m: m.write(part, np.where(m.vcc, m.read(b), m.read(a))))  # fmt: skip
        else:
            mask = Part(pair, 0, 2)
            self.op("v_cndmask_b32_e64 {0}, {1}, {2}, {3}", (part,), (a, b, mask),
                    lambda m: m.write(part, np.where(m.mask(mask), m.read(b), m.read(a))))  # fmt: skip
        self._wrote(scope, target)

    def _lane_of(self, scope: Scope) -> None:
        """The first active lane's value, or one lane's, as a scalar."""
        source, target = Part(self.random.choice(scope.vectors), 0, 1), self._new("scalar")
        part = Part(target, 0, 1)
        if self.narrow or self.random.random() < 0.5:
            self.op("v_readfirstlane_b32 {0}, {1}", (part,), (source,),
                    lambda m: m.put(part, int(m.read(source)[0, int(np.argmax(m.exec))])))  # fmt: skip
        else:
            lane = self.random.randrange(LANES)
            self.op(f"v_readlane_b32 {{0}}, {{1}}, {lane}", (part,), (source,),
                    lambda m: m.put(part, int(m.read(source)[0, lane])))  # fmt: skip
        self._wrote(scope, target)

    def _moved_lanes(self, scope: Scope) -> None:
        source, target = Part(self.random.choice(scope.vectors), 0, 1), self._target(scope)
        part, pairs = Part(target, 0, 1), np.arange(LANES) ^ 1
        self.op("v_mov_b32_dpp {0}, {1} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", (part,), (source,),
                lambda m: m.write(part, m.read(source)[:, pairs]))  # fmt: skip
        self._wrote(scope, target)

    def _build_tile(self, scope: Scope) -> None:
        """A tile, written word by word."""
        tile = self._new("vector", self.random.choice((2, 3, 4, 4, 8)))
        for word in self.random.sample(range(tile.words), tile.words):
            a, b = self.random.choices(scope.vectors, k=2)
            self._binary(Part(tile, word, 1), "v_xor_b32_e32 {0}, {1}, {2}", (a, b), lambda x, y: x ^ y)
        scope.tiles.append(tile)

    def _tile_op(self, scope: Scope) -> None:
        if not scope.tiles:
            return self._build_tile(scope)
        tile, target = self.random.choice(scope.tiles), self._target(scope)
        own = Part(tile, self.random.randrange(tile.words), 1)
        other = Part(self.random.choice(scope.vectors), 0, 1)
        part = own if self.random.random() < 0.3 else Part(target, 0, 1)
        self.op("v_add_u32_e32 {0}, {1}, {2}", (part,), (own, other),
                lambda m: m.write(part, m.read(own) + m.read(other)))  # fmt: skip
        if part is not own:
            self._wrote(scope, target)
        return None

    def _matrix(self, scope: Scope) -> None:
        """Products of bytes added to a tile, in VGPRs or AGPRs; needs all lanes."""
        a, b = self._new("vector", 2), self._new("vector", 2)
        for operand in (a, b):
            for word in range(2):
                source = self.random.choice(scope.vectors)
                self._binary(Part(operand, word, 1), "v_and_b32_e32 {0}, 0x03030303, {1}", (source,),
                             lambda x: x & np.uint32(0x03030303))  # fmt: skip
        file: File = self.random.choice(("vector", "accumulator"))
        sums = self._new(file, 4)
        for word in range(4):
            part = Part(sums, word, 1)
            text = "v_mov_b32_e32 {0}, 0" if file == "vector" else "v_accvgpr_write_b32 {0}, 0"
            self.op(text, (part,), (), lambda m, part=part: m.write(part, np.uint32(0)))
        pa, pb, pc = Part(a, 0, 2), Part(b, 0, 2), Part(sums, 0, 4)
        for _ in range(self.random.randrange(1, 4)):
            name = "v_mfma_i32_16x16x32_i8"
            self.op(f"{name} {{0}}, {{1}}, {{2}}, {{0}}", (pc,), (pa, pb, pc),
                    lambda m: m.write(pc, _product(m.read(pa), m.read(pb)) + m.read(pc), masked=False),
                    operands=(pc, pa, pb), partial=False)  # fmt: skip
        word, target = Part(sums, self.random.randrange(4), 1), self._target(scope)
        text = "v_mov_b32_e32 {0}, {1}" if file == "vector" else "v_accvgpr_read_b32 {0}, {1}"
        self.op(text, (target,), (word,), lambda m: m.write(Part(target, 0, 1), m.read(word)))
        self._wrote(scope, target)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _offset(self, scope: Scope, words: int) -> Virtual:
        """A byte offset into the inputs, for so many words."""
        offset = self._new("vector")
        source, most = self.random.choice(scope.vectors), INPUT_WORDS // words - 1
        index = self._new("vector")
        self._binary(index, f"v_and_b32_e32 {{0}}, {most:#x}, {{1}}", (source,), lambda x: x & np.uint32(most))
        shift = {1: 2, 2: 3, 4: 4}[words]
        self._binary(offset, f"v_lshlrev_b32_e32 {{0}}, {shift}, {{1}}", (index,), lambda x: x << np.uint32(shift))
        return offset

    def _load_words(self, scope: Scope, target: Part) -> None:
        offset = Part(self._offset(scope, target.words), 0, 1)
        name = {1: "dword", 2: "dwordx2", 4: "dwordx4"}[target.words]

        def meaning(m: Machine) -> None:
            first = m.read(offset)[0] // 4
            m.write(target, np.stack([m.inputs[(first + word) % INPUT_WORDS] for word in range(target.words)]))

        inputs = self.inputs
        self.op(f"global_load_{name} {{0}}, {{1}}, {{2}}", (target,), (offset, inputs), meaning, counter="vmcnt")

    def _load(self, scope: Scope) -> None:
        target = self._target(scope)
        self._load_words(scope, Part(target, 0, 1))
        self._wrote(scope, target)

    def _load_tile(self, scope: Scope) -> None:
        tile = self._new("vector", self.random.choice((2, 4)))
        self._load_words(scope, Part(tile, 0, tile.words))
        scope.tiles.append(tile)

    def _scalar_load(self, scope: Scope) -> None:
        target, word = self._new("scalar", self.random.choice((1, 2))), self.random.randrange(64) * 2
        name = {1: "s_load_dword", 2: "s_load_dwordx2"}[target.words]
        part, inputs = Part(target, 0, target.words), self.inputs
        self.op(f"{name} {{0}}, {{1}}, {4 * word:#x}", (part,), (inputs,),
                lambda m: m.put(part, *(int(m.inputs[word + n]) for n in range(part.words))),
                counter="lgkmcnt")  # fmt: skip
        if target.words == 1:
            self._wrote(scope, target)
        else:
            half = self._new("scalar")
            self.op("s_mov_b32 {0}, {1}", (half,), (Part(target, 1, 1),),
                    lambda m: m.put(Part(half, 0, 1), int(m.read(Part(target, 1, 1))[0, 0])))  # fmt: skip
            self._wrote(scope, half)

    def _store(self, value: Virtual) -> None:
        self._store_words(Part(value, 0, 1))

    def _store_any(self, scope: Scope) -> None:
        self._store(self.random.choice(scope.vectors))

    def _store_tile(self, scope: Scope) -> None:
        """Store a tile and overwrite it at once, as nothing need wait for a store's data."""
        fit = [tile for tile in scope.tiles if tile.words in (2, 4)]
        if not fit:
            return self._build_tile(scope)
        tile = self.random.choice(fit)
        self._store_words(Part(tile, 0, tile.words))
        if self.random.random() < 0.5:
            self._binary(Part(tile, 0, 1), "v_mov_b32_e32 {0}, {1}", (self.random.choice(scope.vectors),), lambda x: x)
        return None

    def _store_words(self, data: Part) -> None:
        slot = self._slot = -(-self._slot // data.words) * data.words % OUTPUT_WORDS
        self._slot = (slot + data.words) % OUTPUT_WORDS
        name = {1: "dword", 2: "dwordx2", 4: "dwordx4"}[data.words]
        offset, thread, output = Part(self._new("vector"), 0, 1), Part(self.thread, 0, 1), self.output
        self._binary(offset, "v_lshlrev_b32_e32 {0}, 7, {1}", (self.thread,), lambda x: x << np.uint32(7))

        def meaning(m: Machine) -> None:
            rows = m.read(thread)[0][m.exec]
            for word in range(data.words):
                m.output[rows, slot + word] = m.read(data)[word][m.exec]

        self.op(f"global_store_{name} {{0}}, {{1}}, {{2}} offset:{4 * slot}", (), (offset, data, output), meaning,
                counter="vmcnt")  # fmt: skip

    def _write_lds(self, data: Part, slot: int) -> None:
        name = {1: "b32", 2: "b64", 4: "b128"}[data.words]
        place = Part(self.lds, 0, 1)

        def meaning(m: Machine) -> None:
            for word in range(data.words):
                m.lds[m.exec, slot + word] = m.read(data)[word][m.exec]

        self.op(f"ds_write_{name} {{0}}, {{1}} offset:{4 * slot}", (), (place, data), meaning, counter="lgkmcnt")

    def _to_lds(self, scope: Scope) -> None:
        fit = [tile for tile in scope.tiles if tile.words in (2, 4)]
        data = self.random.choice([*scope.vectors, *fit])
        slot = self.random.randrange(LDS_WORDS // data.words) * data.words
        self._write_lds(Part(data, 0, data.words), slot)

    def _from_lds(self, scope: Scope) -> None:
        words = self.random.choice((1, 1, 2, 4))
        target = self._new("vector", words) if words > 1 else self._target(scope)
        slot = self.random.randrange(LDS_WORDS // words) * words
        name = {1: "b32", 2: "b64", 4: "b128"}[words]
        part, place = Part(target, 0, words), Part(self.lds, 0, 1)
        self.op(f"ds_read_{name} {{0}}, {{1}} offset:{4 * slot}", (part,), (place,),
                lambda m: m.write(part, m.lds[:, slot : slot + words].T), counter="lgkmcnt")  # fmt: skip
        if words == 1:
            self._wrote(scope, target)
        else:
            scope.tiles.append(target)

    # -- control -----------------------------------------------------------------------------------------------------

    def _count(self, depth: int) -> int:
        return self.random.randrange(1, max(3, 10 - 2 * depth))

    def _saved(self) -> Part:
        return Part(self._new("scalar", 2, name="saved"), 0, 2)

    def _restore(self, saved: Part) -> None:
        def back(m: Machine) -> None:
            m.exec = m.mask(saved)

        if self.random.random() < 0.5:
            self.op("s_or_b64 exec, exec, {0}", (), (saved,), back, changes=("exec", "scc"), lanes="more")
        else:
            lanes = self.random.choice(("more", "any"))
            self.op("s_mov_b64 exec, {0}", (), (saved,), back, changes=("exec",), lanes=lanes)

    def _narrow(self, saved: Part, mask: Part) -> None:
        """Only lanes of a mask go on."""

        def meaning(m: Machine) -> None:
            before, chosen = m.exec, m.mask(mask)
            m.put_mask(saved, before)
            m.exec = before & chosen

        lanes = self.random.choice(("fewer", "fewer", "any"))
        self.op("s_and_saveexec_b64 {0}, {1}", (saved,), (mask,), meaning, changes=("exec", "scc"), lanes=lanes)

    def _lane_if(self, scope: Scope, depth: int) -> None:
        mask, saved, end = Part(self._new("scalar", 2, name="mask"), 0, 2), self._saved(), self.label()
        self._compare(scope, mask.register)
        self._narrow(saved, mask)
        self.branch(end, "execz", lambda m: not m.exec.any())
        self.narrow += 1
        self._body(scope.inner(), depth + 1, self._count(depth))
        self.narrow -= 1
        if self.random.random() < 0.5:
            self.place(end)
            after = self.label()

            def others(m: Machine) -> None:
                m.exec = m.mask(saved) & ~m.exec

            # What has become of EXEC since is what it was: regions inside give back the lanes that they took.
            self.op("s_andn2_b64 exec, {0}, exec", (), (saved,), others, changes=("exec", "scc"), lanes="any")
            self.branch(after, "execz", lambda m: not m.exec.any())
            self.narrow += 1
            self._body(scope.inner(), depth + 1, self._count(depth))
            self.narrow -= 1
            end = after
        self.place(end)
        self._restore(saved)

    def _again_in_the_same_lanes(self, scope: Scope) -> None:
        """A value that is first written where lanes have parted, and read when the same lanes are alone again."""
        mask = Part(self._new("scalar", 2, name="mask"), 0, 2)
        self._compare(scope, mask.register)
        inside = scope.inner()
        value = self._new("vector", name="parted")
        for turn in range(2):
            saved, end = self._saved(), self.label()
            self._narrow(saved, mask)
            self.branch(end, "execz", lambda m: not m.exec.any())
            self.narrow += 1
            source = self.random.choice(scope.vectors)
            if turn == 0:
                self._binary(value, "v_add_u32_e32 {0}, 5, {1}", (source,), lambda x: x + np.uint32(5))
            else:
                target = self.random.choice(scope.vectors)
                self._binary(target, "v_xor_b32_e32 {0}, {1}, {2}", (value, source), lambda x, y: x ^ y)
            self._vector_op(inside.inner())
            self.narrow -= 1
            self.place(end)
            self._restore(saved)
            if turn == 0:
                for _ in range(self.random.randrange(3)):
                    self._vector_op(scope)

    def _uniform_if(self, scope: Scope, depth: int) -> None:
        a, b = (Part(r, 0, 1) for r in self.random.sample(scope.scalars, k=2))
        end = self.label()

        def compare(m: Machine) -> None:
            m.scc = int(m.read(a)[0, 0]) < int(m.read(b)[0, 0])

        self.op("s_cmp_lt_u32 {0}, {1}", (), (a, b), compare)
        self.branch(end, "scc0", lambda m: not m.scc)
        self._body(scope.inner(), depth + 1, self._count(depth))
        if self.random.random() < 0.5:
            after = self.label()
            self.branch(after, None, lambda m: True)
            self.place(end)
            self._body(scope.inner(), depth + 1, self._count(depth))
            end = after
        self.place(end)

    def _uniform_loop(self, scope: Scope, depth: int) -> None:
        counter = Part(self._new("scalar", name="counter"), 0, 1)
        top, turns = self.label(), self.random.randrange(1, 4)
        self.op("s_mov_b32 {0}, 0", (counter,), (), lambda m: m.put(counter, 0))
        self.place(top)
        self._body(scope.inner(), depth + 1, self._count(depth))
        self.op("s_add_u32 {0}, {0}, 1", (counter,), (counter,),
                lambda m: m.put(counter, int(m.read(counter)[0, 0]) + 1), operands=(counter,))  # fmt: skip

        def compare(m: Machine) -> None:
            m.scc = int(m.read(counter)[0, 0]) < turns

        self.op(f"s_cmp_lt_u32 {{0}}, {turns}", (), (counter,), compare)
        self.branch(top, "scc1", lambda m: m.scc)

    def _lane_loop(self, scope: Scope, depth: int) -> None:
        """Each lane goes round as often as its value says."""
        turns, most = Part(self._new("vector", name="turns"), 0, 1), self.random.choice((1, 3))
        source, saved, top = self.random.choice(scope.vectors), self._saved(), self.label()
        self._binary(turns, f"v_and_b32_e32 {{0}}, {most}, {{1}}", (source,), lambda x: x & np.uint32(most))
        self.op("s_mov_b64 {0}, exec", (saved,), (), lambda m: m.put_mask(saved, m.exec))
        self.narrow += 1
        self.place(top)
        self._body(scope.inner(), depth + 1, self._count(depth))
        again = Part(self._new("scalar", 2, name="again"), 0, 2)
        self.op("v_cmp_ne_u32_e64 {0}, 0, {1}", (again,), (turns,),
                lambda m: m.put_mask(again, (m.read(turns)[0] != 0) & m.exec))  # fmt: skip
        self._binary(turns, "v_add_u32_e32 {0}, -1, {1}", (turns.register,), lambda x: x - np.uint32(1))

        def leave(m: Machine) -> None:
            m.exec = m.exec & m.mask(again)

        lanes = self.random.choice(("fewer", "any"))
        self.op("s_and_b64 exec, exec, {0}", (), (again,), leave, changes=("exec", "scc"), lanes=lanes)
        self.branch(top, "execnz", lambda m: bool(m.exec.any()))
        self.narrow -= 1
        self._restore(saved)


def _product(a: Array, b: Array) -> Array:
    """What ``v_mfma_i32_16x16x32_i8`` adds: k = 8 (lane / 16) + byte, row 4 (lane / 16) + word, column lane % 16."""
    left, right = (
        x.T.copy().view(np.int8).reshape(4, 16, 8).transpose(1, 0, 2).reshape(16, 32).astype(np.int32) for x in (a, b)
    )
    sums = left @ right.T
    return sums.reshape(4, 4, 16).transpose(1, 0, 2).reshape(4, LANES).astype(np.uint32)


def expected(kernel: RandomKernel, waves: int, inputs: Array) -> Array:
    """What the kernel leaves in its output, uint32[threads, `OUTPUT_WORDS`]."""
    output = np.zeros((waves * LANES, OUTPUT_WORDS), np.uint32)
    with np.errstate(over="ignore"):
        for number in range(waves):
            kernel.run(Machine(number, inputs, output, np.zeros((LANES, LDS_WORDS), np.uint32)))
    return output
