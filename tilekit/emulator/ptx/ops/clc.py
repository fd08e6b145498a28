"""``clusterlaunchcontrol`` (PTX ISA 9.7.13.18)."""

from __future__ import annotations

from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.execution import clc
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import Sink, VectorOperand
from tilekit.emulator.ptx.ops.barrier import where_is

_CANCEL = "op=try_cancel async space=shared::cta? complete=mbarrier::complete_tx::bytes"


@form("clusterlaunchcontrol", f"{_CANCEL} multicast=multicast::cluster::all? type=b128", "[a] [a]")
def try_cancel(g: BlockCompiler, i: Decoded) -> None:
    """``clusterlaunchcontrol.try_cancel``."""
    destination, barrier = i.operands
    space = "shared" if i.has("space") else "generic"
    g.place()
    g.effect(
        f"{g.helper(clc.try_cancel)}(w, {space!r}, {where_is(g, destination)}, {where_is(g, barrier)}, "
        f"{i.has('multicast')}, {g.mask()})"
    )


@form("clusterlaunchcontrol", "op=query_cancel what=is_canceled dtype=pred type=b128", "d a", uniform=never)
def is_canceled(g: BlockCompiler, i: Decoded) -> None:
    """``query_cancel.is_canceled``."""
    d, a = i.operands
    g.write(d, "pred", f"{g.helper(clc.is_canceled)}(w, {g.array(a, 'b128')}, {g.mask()})")


_AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}


@form("clusterlaunchcontrol", f"op=query_cancel what={'|'.join(_AXES)} dtype=b32 type=b128", "d a", uniform=never)
@form("clusterlaunchcontrol", "op=query_cancel what=get_first_ctaid vec=v4 dtype=b32 type=b128", "{d} a", uniform=never)
def first_cta(g: BlockCompiler, i: Decoded) -> None:
    """``query_cancel.get_first_ctaid``: meaningless when no cluster was obtained."""
    d, a = i.operands
    answer = g.array(a, "b128")
    if not isinstance(d, VectorOperand):
        g.write(d, "b32", f"{g.helper(clc.first_cta)}({answer}, {_AXES[i['what']]})")
        return
    if len(d.items) != 4:
        raise g.fail(f"{len(d.items)} results, where .v4 has 4")
    for axis, item in enumerate(d.items):
        if not isinstance(item, Sink):
            g.write(item, "b32", f"{g.helper(clc.first_cta)}({answer}, {axis})")
