"""Branches, returns and other control flow (PTX ISA 9.7.12)."""

from __future__ import annotations

from tilekit.emulator.core.errors import EmulatorError
from tilekit.emulator.ptx.checks.prerequisite import wait_for_grid
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.compiler.control_flow import targets_of
from tilekit.emulator.ptx.execution.warp import Warp
from tilekit.emulator.ptx.language.forms import Decoded, form
from tilekit.emulator.ptx.ops.call import leave_procedure


class TrapError(EmulatorError):
    """The kernel executed ``trap`` or ``brkpt``."""

    title = "trap"


def raise_trap(warp: Warp) -> None:
    """``trap``: end the launch with an error."""
    raise TrapError("the kernel executed a trap", details={"warp": warp.index})


@form("bra", "uni?", "L", flow="branch")
def branch(g: BlockCompiler, i: Decoded) -> None:
    """``bra``: to a label, for the lanes where the guard holds."""
    target = g.program.flow.block_at[targets_of(i)[0].position]
    following = g.block.index + 1
    guard = i.guard
    if guard is None:
        g.leave(f"return {target}")
    elif g.is_uniform(guard):
        g.leave(f"return {target} if {g.scalar(guard, 'pred')} else {following}")
    else:
        join = -1 if g.block.join is None else g.block.join
        g.leave(f"return w.branch({g.array(guard, 'pred')}, {target}, {following}, {join})")


@form("brx", "idx uni?", "a T", flow="branch")
def branch_indexed(g: BlockCompiler, i: Decoded) -> None:
    """``brx.idx``: to a label of a table."""
    targets = tuple(g.program.flow.block_at[target.position] for target in targets_of(i))
    index = i.operands[0]
    guard = i.guard
    if guard is not None:  # lanes where it does not hold go on with what follows
        targets += (g.block.index + 1,)
    choices = g.constant(targets)
    if g.is_uniform(index) and (guard is None or g.is_uniform(guard)):
        chosen = g.scalar(index, "u32")
        if guard is not None:
            chosen = f"{chosen} if {g.scalar(guard, 'pred')} else -1"
        g.leave(f"return {choices}[{chosen}]")
    else:
        join = -1 if g.block.join is None else g.block.join
        chosen = g.array(index, "u32")
        if guard is not None:
            chosen = f"where({g.array(guard, 'pred')}, {chosen}, uint32({len(targets) - 1}))"
        g.leave(f"return w.switch({chosen}, {choices}, {join})")


@form("exit", "", "", flow="exit")
@form("ret", "uni?", "", flow="exit")
def exit_kernel(g: BlockCompiler, i: Decoded) -> None:
    """``exit`` and ``ret``: the lanes are finished, or return from their call."""
    if g.block.returns:
        g.leave(f"return {g.helper(leave_procedure)}(w, m)")
        return
    end = len(g.program.flow.blocks)
    following = g.block.index + 1
    guard = i.guard
    if guard is None:
        g.leave(f"return {end}")
    elif g.is_uniform(guard):
        g.leave(f"return {end} if {g.scalar(guard, 'pred')} else {following}")
    else:
        join = -1 if g.block.join is None else g.block.join
        g.leave(f"return w.branch({g.array(guard, 'pred')}, {end}, {following}, {join})")


@form("trap", "", "", flow="stop")
@form("brkpt", "", "", flow="stop")
def trap(g: BlockCompiler, i: Decoded) -> None:
    """``trap``: fault when any lane gets here."""
    g.place()
    g.effect(f"{g.helper(raise_trap)}(w)")


@form("nanosleep", "type=u32", "a", flow="yield")
def nanosleep(g: BlockCompiler, i: Decoded) -> None:
    """``nanosleep``: give the others a turn."""
    g.leave(f"w.fragment.block = {g.block.index + 1}; return YIELD")


@form("griddepcontrol", "which=wait", "")
def grid_wait(g: BlockCompiler, i: Decoded) -> None:
    """``griddepcontrol.wait``: what the grid ahead did comes before."""
    g.effect(f"{g.helper(wait_for_grid)}(w)")


@form("pmevent", "mask?", "#")
@form("griddepcontrol", "which=launch_dependents", "")
def no_effect(g: BlockCompiler, i: Decoded) -> None:
    """Instructions whose effect lies outside one launch."""
