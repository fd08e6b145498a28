"""The device, module, kernel and debugger of AMD chips have what those of PTX have, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tilekit.emulator.gcn.device import Device as AmdDevice
from tilekit.emulator.gcn.kernel import Kernel as AmdKernel
from tilekit.emulator.gcn.module import Module as AmdModule
from tilekit.emulator.gcn.observation.debugger import WaveDebugger
from tilekit.emulator.ptx.device import Device as PtxDevice
from tilekit.emulator.ptx.kernel import Kernel as PtxKernel
from tilekit.emulator.ptx.module import Module as PtxModule
from tilekit.emulator.ptx.observation.debugger import WarpDebugger

PAIRS = {
    "Device": (PtxDevice, AmdDevice),
    "Module": (PtxModule, AmdModule),
    "Kernel": (PtxKernel, AmdKernel),
    "Debugger": (WarpDebugger, WaveDebugger),
}
NOT_THERE = {
    "Device.tensor_map_tiled": "AMD chips have no tensor maps: buffer descriptors are four scalar registers",
    "Device.tensor_map_im2col": "as above",
    "Device.tensor_map_im2col_wide": "as above",
    "Module.address_of": "variables of a module lie where its relocations say, and no other name leads there",
    "Module.function": "a kernel's text is its descriptor and instructions: `Module.text`",
    "Module.symbols": "roles and LDS names are the text's, for all of its kernels: `Kernel.symbols`",
    "Module.variable": "as `address_of`",
    "Kernel.function": "as `Module.function`",
    "Kernel.parameter_bytes": "the descriptor says it: `Kernel.field('kernarg_size')`",
    "Kernel.parameters": "the metadata says them, where there is any: `Kernel.arguments`",
}
OTHER_ARGUMENTS = {
    "Kernel.launch": {
        "cluster": "no clusters",
        "cooperative": "no barrier of the grid",
        "prerequisite": "no dependent launches",
    },
    "Kernel.prepare": {
        "cluster": "no clusters",
        "cooperative": "no barrier of the grid",
        "prerequisite": "no dependent launches",
    },
    "Device.load": {"text": "named `module`: it is a text or a code object"},
    "Module.program": {"aligned_warps": "PTX's", "warps": "PTX's", "each_access": "PTX's"},
    "Debugger.place": {"warp": "named `wave`"},
}


def public(owner: type) -> dict[str, Any]:
    """The public names of a class, with its constructor."""
    found = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    return {"__init__": owner.__init__, **found}


CASES = [f"{name}.{member}" for name, (ptx, _) in PAIRS.items() for member in public(ptx)]


@pytest.mark.parametrize("case", CASES)
def test_same(case: str) -> None:
    """A public member of PTX's class is one of AMD's with the same arguments and defaults, or it is listed why not."""
    name, _, member = case.partition(".")
    ptx, amd = PAIRS[name]
    if case in NOT_THERE:
        assert member not in public(amd)
        return
    assert member in public(amd), case
    theirs, ours = public(ptx)[member], public(amd)[member]
    if not callable(theirs):
        return
    wanted = inspect.signature(theirs).parameters
    found = inspect.signature(ours).parameters
    missing = {argument for argument in wanted if argument not in found}
    assert missing == set(OTHER_ARGUMENTS.get(case, {})), case
    for argument in found:
        if argument in wanted and argument != "target":
            assert (found[argument].kind, found[argument].default) == (wanted[argument].kind, wanted[argument].default)


def test_reasons_are_of_something() -> None:
    """Every reason is of a member that PTX has."""
    assert set(NOT_THERE) | set(OTHER_ARGUMENTS) <= set(CASES)
