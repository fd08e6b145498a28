"""Random kernels in the writer's arithmetic and control flow, the same for all instruction sets; NumPy's answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.assembly.numbers import Number
from tilekit.assembly.trace import EndIf, EndLoop, If, LoadParameter, Loop, Operation, Placement, Statement
from tilekit.assembly.types import B16, B32, F32, GMEM, PRED, S32, U32, U64, RegisterType
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer

THREADS = 128
INPUTS = 4
Array = npt.NDArray[Any]

_TYPES = {"u32": U32, "s32": S32, "u64": U64, "f32": F32, "b16": B16, "b32": B32, "pred": PRED}
_KINDS = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "f32": np.float32, "b16": np.uint16, "b32": np.uint32,
          "gmem": np.uint64, "pred": np.bool_, "smem": np.uint32}  # fmt: skip
_EDGES = (0, 1, 2, 3, 31, 32, 33, 63, 64, 100, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


@dataclass
class RandomKernel:
    """One kernel.

    Attributes
    ----------
    seed
        What it is made of.
    size
        Statements, about.
    """

    seed: int
    size: int = 40
    outputs: list[tuple[str, int]] = field(default_factory=list)

    def trace(self, target: str) -> Writer:
        """Trace it for a chip: the same Python for all."""
        self._random = random.Random(self.seed)
        self.outputs = []
        self.w = w = Writer("random_kernel", target=target, threads=THREADS)
        self._out = w.parameter("out", GMEM)
        data = w.parameter("data", GMEM)
        self._thread = thread = w.thread()
        pool: dict[str, list[Value]] = {name: [] for name in _TYPES}
        pool["u32"] = [thread, w.parameter("n", U32), w.parameter("m", U32)]
        pool["f32"] = [w.parameter("scale", F32)]
        pool["u64"] = [w.parameter("big", U64)]
        pool["s32"] = [w.parameter("signed", S32)]
        for i in range(INPUTS):
            address = data + w.widen_multiply(thread + i * THREADS, 4)
            pool["u32"].append(w.isa.memory.load_acquire_gpu(address=address.retyped(GMEM)))
        floats = data + w.widen_multiply(thread + INPUTS * THREADS, 4)
        pool["f32"].append(w.isa.memory.load_global_scalar(address=floats.retyped(GMEM)))
        pool["b16"] = [w.isa.convert.narrow_u16(wide=pool["u32"][3])]
        pool["b32"] = [pool["u32"][4].retyped(B32)]
        pool["pred"] = [pool["u32"][3] < pool["u32"][4], pool["u32"][1] < pool["u32"][2]]
        self._variables = {
            name: [w.variable(_TYPES[name], self._random.choice(pool[name]), f"var_{name}") for _ in range(2)]
            + [w.variable(_TYPES[name], self._number(name), f"uni_{name}")]
            for name in _TYPES
        }
        for name, values in self._variables.items():
            pool[name] += values
        self._statements(pool, self.size, 0)
        for name, values in pool.items():
            for value in values[-6:] + self._variables[name]:
                self._store(name, value)
        return w

    # -- statements ---------------------------------------------------------------------------------------------------

    def _statements(self, pool: dict[str, list[Value]], count: int, depth: int) -> None:
        rnd, w = self._random, self.w
        while count > 0:
            count -= 1
            what = rnd.random()
            if what < 0.1 and depth < 3:
                inner = rnd.randrange(2, 8)
                with w.when(rnd.choice(pool["pred"])):
                    self._statements({name: list(values) for name, values in pool.items()}, inner, depth + 1)
                count -= inner
            elif what < 0.17 and depth < 3:
                inner = rnd.randrange(2, 8)
                stop = rnd.choice(pool["u32"]) & 3 if rnd.random() < 0.8 else rnd.randrange(4)
                for i in w.range(stop, start=rnd.randrange(2), name="i"):
                    mine = {name: list(values) for name, values in pool.items()}
                    mine["u32"].append(i)
                    self._statements(mine, inner, depth + 1)
                count -= inner
            elif what < 0.2 and depth < 3:
                turns = w.variable(U32, rnd.choice(pool["u32"]) & 3 if rnd.random() < 0.7 else 2, "turns")
                for turn in w.repeat("again", uniform=False):
                    self._statements({name: list(values) for name, values in pool.items()}, 3, depth + 1)
                    turns.assign(turns - 1)
                    turn.again = turns.retyped(S32) > 0
            elif what < 0.4:
                name = rnd.choice(list(_TYPES))
                source = rnd.choice(pool[name]) if rnd.random() < 0.9 else self._number(name)
                rnd.choice(self._variables[name]).assign(source)
            else:
                name, value = self._expression(pool)
                pool[name].append(value)

    def _number(self, name: str) -> int | float:
        rnd = self._random
        if name == "pred":
            return rnd.randrange(2)
        if name == "f32":
            return rnd.choice((0.0, 1.0, -2.5, 3.0e38, 1.0e-40, rnd.uniform(-100, 100)))
        value = rnd.choice((*_EDGES, rnd.getrandbits(32)))
        if name == "b16":
            return value & 0xFFFF
        if name == "u64":
            return rnd.choice((value, rnd.getrandbits(64)))
        return value - (1 << 32) if name == "s32" and value >> 31 else value

    def _operand(self, pool: dict[str, list[Value]], name: str) -> Value | int | float:
        return self._number(name) if self._random.random() < 0.3 else self._random.choice(pool[name])

    def _expression(self, pool: dict[str, list[Value]]) -> tuple[str, Value]:
        rnd, w = self._random, self.w
        name = rnd.choice(("u32", "u32", "s32", "s32", "u64", "u64", "f32", "f32", "b16", "b32", "pred"))
        a = rnd.choice(pool[name])
        b = self._operand(pool, name)
        other: Any
        if name == "pred":
            other = rnd.choice(pool[name])
            return name, rnd.choice((lambda: a & other, lambda: a | other, lambda: a ^ other, lambda: ~a))()
        if rnd.random() < 0.15:
            kinds = ("eq", "ne") if name in ("b16", "b32") else ("lt", "le", "gt", "ge", "eq", "ne")
            return "pred", w.operate(rnd.choice(kinds), _TYPES[name], PRED, a, b)
        if rnd.random() < 0.15:
            return name, w.select(rnd.choice(pool["pred"]), a, b, _TYPES[name])
        if name == "f32":
            return name, w.operate(rnd.choice(("add", "sub", "mul", "min")), F32, F32, a, b)
        operations = ["and", "or", "xor", "not", "shl", "shr"]
        if name in ("u32", "s32", "u64"):
            operations += ["add", "sub", "mul", "min", "div", "rem", "add", "mul"]
        if name == "u32":
            operations += ["widen"]
        operation = rnd.choice(operations)
        if operation == "not":
            return name, ~a
        if operation in ("shl", "shr"):
            bits: Any = rnd.choice((rnd.randrange(80), rnd.choice(pool["u32"]), rnd.choice(pool["u32"]) & 63))
            return name, a << bits if operation == "shl" else a >> bits
        if operation == "widen":
            return "u64", w.widen_multiply(a, b)
        if operation in ("div", "rem"):
            return name, w.operate(operation, _TYPES[name], _TYPES[name], a, self._divisor(pool, name))
        return name, w.operate(operation, _TYPES[name], _TYPES[name], a, b)

    def _divisor(self, pool: dict[str, list[Value]], name: str) -> Any:
        """No zero, and of signed numbers none by which a quotient overflows."""
        rnd = self._random
        if rnd.random() < 0.4:
            constant = rnd.choice((2, 3, 5, 7, 10, 64, 100, 641, 65537, 0x7FFFFFFF, rnd.getrandbits(31) | 2))
            if name == "s32" and rnd.random() < 0.3:
                return -constant
            return constant
        value = rnd.choice(pool[name])
        if name == "s32":
            positive = (value & 0x7FFF) | 2
            return positive if rnd.random() < 0.5 else self.w.constant(S32, 0) - positive
        return rnd.choice((value | 1, (value & 0xFF) | 1))

    def _store(self, name: str, value: Value) -> None:
        w = self.w
        if name == "u64":
            self._store("u32", w.isa.convert.low_word(wide=value))
            self._store("u32", w.isa.convert.low_word(wide=value >> 32))
            return
        address = (self._out + w.widen_multiply(self._thread + len(self.outputs) * THREADS, 4)).retyped(GMEM)
        always = w.constant(PRED, 1)
        if name == "b16":
            w.isa.memory.store_global_b16(address=address, value=value, valid=always)
        elif name == "f32":
            w.isa.memory.store_global_f32(address=address, value=value, valid=always)
        elif name == "pred":
            self._store("u32", w.select(value, w.constant(U32, 1), 0, U32))
            return
        else:
            w.isa.memory.store_release_gpu(address=address, value=value)
        self.outputs.append((name, len(self.outputs)))


def arguments(seed: int) -> tuple[Array, tuple[Any, ...]]:
    """Data that threads read, and the parameters behind ``out`` and ``data``."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, INPUTS * THREADS, np.uint32)
    edges = rng.random(words.shape) < 0.4
    words[edges] = rng.choice(np.array(_EDGES, np.uint32), edges.sum())
    floats = rng.choice(np.array([0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 1e-39, 3e38, 7.25], np.float32), THREADS)
    scalars = (
        np.uint32(rng.integers(0, 100)),
        np.uint32(rng.integers(0, 1 << 32)),
        np.float32(rng.uniform(-8, 8)),
        np.uint64(rng.integers(0, 1 << 63)),
        np.int32(rng.integers(-(1 << 31), 1 << 31)),
    )
    return np.concatenate([words, floats.view(np.uint32)]), scalars


# -- what NumPy says ---------------------------------------------------------------------------------------------------


class Oracle:
    """Goes through a trace, all threads at once."""

    def __init__(self, kernel: RandomKernel, data: Array, scalars: tuple[Any, ...]) -> None:
        self._values: dict[str, Array] = {}
        self._data = data
        self._parameters = dict(zip(("n", "m", "scale", "big", "signed"), scalars, strict=True))
        self.out = np.zeros(len(kernel.outputs) * THREADS, np.uint32)
        statements = [line.statement for line in kernel.w._root.lines()]
        self._run(statements)

    def _run(self, statements: list[Statement]) -> None:
        active, masks, loops = np.ones(THREADS, bool), [], []
        at = 0
        while at < len(statements):
            statement = statements[at]
            match statement:
                case If(condition, holds):
                    masks.append(active)
                    active = active & (self._read(condition, PRED) == holds)
                case EndIf():
                    active = masks.pop()
                case Loop():
                    masks.append(active)
                    loops.append(at)
                case EndLoop(_, again):
                    active = active & self._read(again, PRED)
                    if active.any():
                        at = loops[-1]
                    else:
                        active = masks.pop()
                        loops.pop()
                case LoadParameter(parameter, result):
                    kind = _KINDS[parameter.type.name]
                    self._write(result, np.full(THREADS, self._parameters.get(parameter.name, 0), kind), active)
                case Operation(name, type_, result, operands):
                    kinds = [U32 if i == 1 and name in ("shl", "shr") else PRED if i == 2 else type_ for i in range(3)]
                    sources = [self._read(what, kind) for what, kind in zip(operands, kinds, strict=False)]
                    with np.errstate(all="ignore"):
                        self._write(result, _compute(name, type_, sources), active)
                case Placement(fragment, bound):
                    self._place(fragment.name, bound, active)
            at += 1

    def _read(self, what: Any, type_: RegisterType) -> Array:
        kind = _KINDS[type_.name]
        if isinstance(what, Number):
            value = what.value if type_ in (F32, PRED) else int(what.value) & ((1 << type_.bits) - 1)
            if type_ is S32 and value >> 31:
                value -= 1 << 32
            return np.full(THREADS, value, kind)
        return self._values.get(what.text, np.zeros(THREADS, kind)).view(kind)

    def _write(self, result: Value, value: Array, active: Array) -> None:
        kind = _KINDS[result.type.name]
        before = self._values.get(result.text, np.zeros(THREADS, kind)).view(kind)
        self._values[result.text] = np.where(active, value.astype(kind), before)

    def _place(self, name: str, bound: Any, active: Array) -> None:
        if name == "thread_index":
            self._write(bound["thread"], np.arange(THREADS, dtype=np.uint32), active)
        elif name in ("load_acquire_gpu", "load_global_scalar"):
            words = self._data[self._read(bound["address"], U64) // 4]
            self._write(bound["value"], words.view(_KINDS[bound["value"].type.name]), active)
        elif name == "narrow_u16":
            self._write(bound["narrow"], self._read(bound["wide"], U32), active)
        elif name == "low_word":
            self._write(bound["word"], self._read(bound["wide"], U64), active)
        else:
            value = bound["value"]
            words = self._read(value, value.type)
            places = self._read(bound["address"], U64) // 4
            self.out[places] = words.view(np.uint32) if words.dtype.itemsize == 4 else words


def _compute(name: str, type_: RegisterType, sources: list[Array]) -> Array:
    a, *rest = sources
    b = rest[0] if rest else a
    if name in ("shl", "shr"):
        width = np.uint32(type_.bits)
        inside = np.minimum(b, width - np.uint32(1)).astype(a.dtype)
        if name == "shr" and type_ is S32:
            return a >> inside
        moved = a << inside if name == "shl" else a >> inside
        return np.where(b < width, moved, a.dtype.type(0))
    if name in ("div", "rem") and type_ is S32:
        wide = a.astype(np.int64), b.astype(np.int64)
        quotient = np.sign(wide[0]) * np.sign(wide[1]) * (abs(wide[0]) // np.maximum(abs(wide[1]), 1))
        return quotient if name == "div" else wide[0] - quotient * wide[1]
    if name in ("div", "rem"):
        b = np.maximum(b, b.dtype.type(1))
    match name:
        case "move":
            return a
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return a // b
        case "rem":
            return a % b
        case "min":
            if type_ is not F32:
                return np.minimum(a, b)
            smaller = np.fmin(a, b)  # of zeros the negative one, which NumPy leaves open
            return np.where((smaller == 0) & (np.signbit(a) | np.signbit(b)) & (a == b), np.float32(-0.0), smaller)
        case "and":
            return a & b
        case "or":
            return a | b
        case "xor":
            return a ^ b
        case "not":
            return ~a
        case "lt":
            return a < b
        case "le":
            return a <= b
        case "gt":
            return a > b
        case "ge":
            return a >= b
        case "eq":
            return a == b
        case "ne":
            return (a != b) & ~(np.isnan(a) | np.isnan(b)) if type_ is F32 else a != b
        case "select":
            return np.where(rest[1], a, b)
        case "widen":
            return a.astype(np.uint64) * b.astype(np.uint64)
    raise AssertionError(name)
