"""Vector comparisons and selections: what makes and uses masks of lanes."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import EXEC, Instruction, Register
from tilekit.emulator.gcn.ops.table import Handler, begin_vector, op

_INTEGER = {"f": None, "lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">=", "t": None}
_FLOATING = {
    "f": "", "lt": "{0} < {1}", "eq": "{0} == {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "lg": "({0} < {1}) | ({0} > {1})", "o": "({0} == {0}) & ({1} == {1})", "u": "({0} != {0}) | ({1} != {1})",
    "nge": "~({0} >= {1})", "nlg": "~(({0} < {1}) | ({0} > {1}))", "ngt": "~({0} > {1})", "nle": "~({0} <= {1})",
    "neq": "{0} != {1}", "nlt": "~({0} < {1})", "tru": "",
}  # fmt: skip


def _register(name: str, kind: str, second: str, expression: str, value: bool | None = None) -> None:
    for prefix, narrows in (("v_cmp", False), ("v_cmpx", True)):
        op(f"{prefix}_{name}")(_handler(kind, second, expression, value, narrows))


def _handler(kind: str, second: str, expression: str, value: bool | None, narrows: bool) -> Handler:
    def handler(e: Emitter, i: Instruction) -> None:
        if len(i.operands) not in (2, 3):
            raise unsupported(i, "takes a destination and two sources")
        target, sources = (i.operands[0], i.operands[1:]) if len(i.operands) == 3 else (e.vcc(), i.operands)
        begin_vector(e, i, sources, 2)
        if value is None:
            e.add(f"o = {expression.format(e.source(0, kind), e.source(1, second))}")
        else:
            e.add(f"o = {value}")
        e.put_mask(target, "o")
        if narrows and target != Register("s", EXEC, 2):
            e.put_mask(Register("s", EXEC, 2), "o")

    return handler


for _kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _sign in _INTEGER.items():
        if _sign is None:
            _register(f"{_name}_{_kind}", _kind, _kind, "", _name == "t")
        else:
            _register(f"{_name}_{_kind}", _kind, _kind, f"{{0}} {_sign} {{1}}")
for _kind in ("f16", "f32", "f64"):
    for _name, _expression in _FLOATING.items():
        _register(f"{_name}_{_kind}", _kind, _kind, _expression, None if _expression else _name == "tru")
    _register(f"class_{_kind}", _kind, "u32", "in_class({0}, {1})")


@op("v_cndmask_b32")
def select(e: Emitter, i: Instruction) -> None:
    """Take the second source in the lanes of a mask, the first elsewhere."""
    if len(i.operands) not in (3, 4):
        raise unsupported(i, "takes two sources and a mask")
    mask = i.operands[3] if len(i.operands) == 4 else e.vcc()
    begin_vector(e, i, i.operands[1:3], 2)
    e.put(i.operands[0], f"where({e.mask(mask)}, {e.source(1, 'b32')}, {e.source(0, 'b32')})", "u32")
