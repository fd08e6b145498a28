"""Neutral verbs: shared components speak no dialect, and a target takes the latest fragment of a name that it has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilekit.assembly import fragment_files as fragments
from tilekit.assembly.errors import FragmentError
from tilekit.assembly.fragment import fragment_root
from tilekit.assembly.fragment_files import fragments_of
from tilekit.assembly.instruction_sets import PTX
from tilekit.assembly.types import F32, GMEM
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device
from tilekit.targets import SM_80, SM_90A, SM_100A

ADA = replace(SM_80, name="sm_89", architectures=("sm_80", "sm_86", "sm_89"))

PACKAGE = Path(fragments.__file__).parent.parent

VENDOR = {
    "drivers/attention.py",
    "drivers/head_clocks.py",
    "drivers/load_order.py",
    "epilogue/dsmem_reduction.py",
    "epilogue/heads.py",
    "epilogue/quantised.py",
    "epilogue/row_images.py",
    "epilogue/source_ring.py",
    "epilogue/spread.py",
    "epilogue/staged.py",
    "epilogue/subtiles.py",
    "epilogue/tensor_heads.py",
    "kernels/block_scaled/payload.py",
    "kernels/conv2d/copied.py",
    "kernels/conv2d/lines.py",
    "kernels/gemv/chunk.py",
    "kernels/gemv/sums.py",
    "kernels/gemv/weights.py",
    "tile_io/cp_async.py",
    "tile_io/cp_async_pieces.py",
    "tile_io/heads.py",
    "tile_io/key_cache.py",
    "tile_io/staged_values.py",
    "tile_io/tma.py",
    "tile_io/transform.py",
    "tile_op/attention_tcgen05.py",
    "tile_op/attention_tensors.py",
    "tile_op/attention_wgmma.py",
    "tile_op/block_scaled.py",
    "tile_op/mma_sync.py",
    "tile_op/online_softmax.py",
    "tile_op/row_exchange.py",
    "tile_op/tcgen05.py",
    "tile_op/tensor_accumulators.py",
    "tile_op/tensor_memory.py",
    "tile_op/wgmma.py",
    "tile_pipeline/mbarrier_sync.py",
    "tile_schedule/claims.py",
    "tile_schedule/clc.py",
    "tile_schedule/start_order.py",
}
"""Components that are PTX's own; every other one is for all instruction sets."""


def test_only_vendor_components_speak_a_dialect() -> None:
    """``w.ptx`` stands in the components listed above and in no other; each of them uses it."""
    layers = ("drivers", "epilogue", "kernels", "tile_io", "tile_op", "tile_pipeline", "tile_schedule", "tiles")
    files = [file for layer in layers for file in (PACKAGE / layer).rglob("*.py")]
    speaking = {str(file.relative_to(PACKAGE)) for file in files if "w.ptx." in file.read_text("utf-8")}
    assert speaking == VENDOR


COUNTING = {"tile_io/copy_plan.py", "tile_io/cp_async.py"}
"""Components of one instruction set whose plan of copies is made before the chip is known."""

LITERAL = re.compile(r"\b32 \*(?!\*)|\* 32\b|>> 5\b|& 31\b|& 127\b|threads=(32|64|128|256)\b|warps\) // \d")


def test_no_shared_component_counts_lanes_itself() -> None:
    """How many lanes a warp has, and warps a matrix instruction, is the chip's or the instruction's to say."""
    layers = ("drivers", "epilogue", "tile_io", "tile_op", "tile_pipeline", "tile_schedule", "tiles")
    files = {str(file.relative_to(PACKAGE)): file for layer in layers for file in (PACKAGE / layer).rglob("*.py")}
    found = {
        name: line
        for name, file in files.items()
        for line in file.read_text("utf-8").splitlines()
        if LITERAL.search(line.split("#")[0])
    }
    assert found.keys() == COUNTING, found


def test_a_target_takes_the_latest_of_a_name() -> None:
    """An election is an instruction where there is one, and the first lane below."""
    root = fragment_root() / "ptx"
    found = {chip.name: fragments_of(chip)["warp"]["elect"].file for chip in (SM_80, ADA, SM_90A, SM_100A)}
    assert found == {
        "sm_80": root / "sm_80/warp.ptx",
        "sm_89": root / "sm_80/warp.ptx",
        "sm_90a": root / "sm_90/warp.ptx",
        "sm_100a": root / "sm_90/warp.ptx",
    }
    assert fragments_of(SM_80)["tma"]["load_2d"].target == "sm_90"


def test_an_election_without_the_instruction() -> None:
    """On sm_80 one lane of each warp is elected."""
    w = Writer("elected", target="sm_80", threads=64)
    out = w.parameter("out", GMEM)
    with w.when(w.elect()):
        address = (out + w.widen_multiply(w.thread(), 4)).retyped(GMEM)
        w.isa.memory.store_global_f32(address=address, value=w.constant(F32, 1.0), valid=w.thread() >= 0)
    device = Device("sm_80", seed=1)
    target = device.buffer(np.zeros(64, np.float32))
    assert "elect.sync" not in w.text()
    device.load(w.text())["elected"].launch(grid=1, block=64, args=[target])
    assert target.read().tolist() == [1 if thread % 32 == 0 else 0 for thread in range(64)]


def test_what_a_chip_lacks_degrades_to_nothing() -> None:
    """Launches that overlap and registers that move exist from sm_90 on; before, the same calls emit nothing."""
    w = Writer("plain", target="sm_80", threads=128)
    before = w.text()
    w.launch_dependents()
    w.wait_for_prerequisites()
    w.set_registers(40, raised=False)
    w.set_registers(240, raised=True)
    assert w.text() == before
    hopper = Writer("overlapping", target="sm_90a", threads=128)
    hopper.launch_dependents()
    hopper.wait_for_prerequisites()
    hopper.set_registers(40, raised=False)
    for word in ("launch_dependents", "griddepcontrol.wait", "setmaxnreg.dec"):
        assert word in hopper.text()


def test_the_neutral_door_is_narrow() -> None:
    """A dialect's own fragments are not behind ``w.isa``, which says where they are."""
    w = Writer("plain", target="sm_90a", threads=32)
    with pytest.raises(AttributeError, match=r"w\.ptx has it.*TK-FRAG-003"):
        _ = w.isa.tma
    with pytest.raises(AttributeError, match="no fragment file 'tme'"):
        _ = w.ptx.tme


SAME = """//! fragment  twice
//! about     Nothing.
//! in        a       {type}
//! out       b       u32
//! kind      scalar
//! target    {target}  ptx 7.0
//! see       nowhere
mov.b32 ${{b}}, ${{a}};
"""


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("sm_80", "u32", "sm_80"), ("sm_90", "f32", "sm_90"), "defines the same name with other operands"),
        (("sm_80", "u32", "sm_80"), ("sm_80", "u32", "sm_80"), "defines the same name twice"),
    ],
)
def test_one_name_is_called_one_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[str, str, str],
    second: tuple[str, str, str],
    message: str,
) -> None:
    """One name in two folders has the same operands, and stands once in a file."""
    for folder, kind, target in (first, second):
        file = tmp_path / "ptx" / folder / "some.ptx"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text("utf-8") if file.exists() else ""
        file.write_text(text + SAME.format(type=kind, target=target), "utf-8")
    monkeypatch.setattr(fragments, "fragment_root", lambda: tmp_path)
    with pytest.raises(FragmentError, match="TK-FRAG-001") as caught:
        fragments.every_fragment.__wrapped__(PTX)
    assert message in str(caught.value)
