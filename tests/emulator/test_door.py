"""One name makes devices of every chip: which room's they are, what they share, and which options they take."""

from __future__ import annotations

import copy
import inspect
import pydoc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, GcnDevice, Kernel, LaunchError, Module, PtxDevice
from tilekit.emulator.gcn.device import Device as GcnRoom
from tilekit.emulator.ptx.device import Device as PtxRoom

PTX = ".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() { ret; }\n"
GCN = """\
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
k:
  s_endpgm
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
"""
ROOMS = {"sm_90a": (PtxRoom, PTX), "gfx942": (GcnRoom, GCN)}


@pytest.mark.parametrize("chip", ROOMS)
def test_the_room_is_the_chips(chip: str) -> None:
    """The object is of the chip's room and of the class that was called; so are its modules and kernels."""
    room, text = ROOMS[chip]
    device = Device(chip, seed=3)
    assert type(device) is room
    assert isinstance(device, Device)
    assert (device.chip.name, device.seed) == (chip, 3)
    module = device.load(text)
    assert isinstance(module, Module)
    assert list(module) == list(module.kernels) == ["k"]
    assert isinstance(module["k"], Kernel)
    assert module["k"].launch(1, 64).clean
    assert module["k"].explore(2, 1, 64).clean


def test_the_rooms_have_names_of_their_own() -> None:
    """Who wants the type of one room has it, and it makes that room's devices only."""
    assert (PtxDevice, GcnDevice) == (PtxRoom, GcnRoom)
    assert type(PtxDevice()) is PtxRoom
    assert type(GcnDevice("gfx942")) is GcnRoom
    with pytest.raises(LaunchError, match=r"target='sm_90a' is not allowed; legal: gfx942, gfx950"):
        GcnDevice("sm_90a")
    with pytest.raises(LaunchError, match=r"target='gfx942' is not allowed; legal: .*sm_90a"):
        PtxDevice("gfx942")


@pytest.mark.parametrize(
    ("target", "nearest"),
    [("gfx951", "gfx95"), ("gfx90a", "gfx9"), ("sm_91", "sm_9"), ("H100", None), (950, None), (None, None)],
)
def test_an_unknown_chip(target: Any, nearest: str | None) -> None:
    """Every chip of every room is named, and the nearest."""
    with pytest.raises(LaunchError, match="gfx942, gfx950") as caught:
        Device(target)
    assert "sm_100a" in caught.value.message
    assert (nearest or "") in caught.value.hint


@pytest.mark.parametrize(
    ("target", "options", "says"),
    [
        ("gfx942", {"sead": 1}, r"gfx942 .*no option 'sead'; legal: seed, schedule, check.*(?s:.*)did you mean seed"),
        ("sm_90a", {"exakt": True}, r"sm_90a .*no option 'exakt'(?s:.*)exact"),
        ("gfx950", {"zzzz": 1}, "no option 'zzzz'"),
        ("sm_90a", {"seed": 1, "cluster": 2}, "no option 'cluster'"),
    ],
)
def test_an_option_that_the_chip_does_not_have(target: str, options: dict[str, Any], says: str) -> None:
    """The option is named, with those that there are and the nearest."""
    with pytest.raises(LaunchError, match=says):
        Device(target, **options)


def test_an_option_of_another_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A room that registers its chips is behind the door, and its options are said to be its own."""
    monkeypatch.setattr(Device, "_rooms", [*Device._rooms])

    class Toy(Device, chips={"toy1": SimpleNamespace(name="toy1")}):
        def __init__(self, target: str = "toy1", *, knob: int = 1) -> None:
            self._set(target, 0, "fair", "off", "ascending")
            self.knob = knob

    made = Device("toy1", knob=5)
    assert isinstance(made, Toy)
    assert (made.knob, made.chip.name) == (5, "toy1")
    with pytest.raises(LaunchError, match=r"gfx950 has no option 'knob'(?s:.*)a device such as toy1 has it"):
        Device("gfx950", knob=5)


@pytest.mark.parametrize("chip", ROOMS)
@pytest.mark.parametrize(
    ("option", "value", "nearest"),
    [("schedule", "adverserial", "adversarial"), ("check", "ful", "full"), ("starts", "rising", ""), ("seed", 1.5, "")],
)
def test_options_that_are_shared_have_the_same_values(chip: str, option: str, value: Any, nearest: str) -> None:
    """A value that is not legal is named, with the nearest."""
    with pytest.raises(LaunchError, match=f"{option}=.*is not allowed") as caught:
        Device(chip, **{option: value})
    assert nearest in str(caught.value)


def test_help_says_what_there_is() -> None:
    """The door's help names chips and rooms; a room's signature is its own options."""
    text = pydoc.plain(pydoc.render_doc(Device))
    for word in ("gfx942", "sm_90a", "seed", "adversarial", "PtxDevice", "GcnDevice"):
        assert word in text
    assert {"seed", "schedule", "check", "starts"} < set(inspect.signature(GcnDevice).parameters)
    assert {"exact", "multiprocessors"} <= set(inspect.signature(PtxDevice).parameters)


@pytest.mark.parametrize("chip", ROOMS)
def test_a_copy_is_of_the_same_room(chip: str) -> None:
    """Devices can be copied, and subclasses of a room are made as the room is."""
    device = Device(chip)
    device.buffer(np.zeros(4))
    assert type(copy.copy(device)) is type(device)
    subclass = type("Mine", (type(device),), {})
    assert isinstance(subclass(chip, seed=2), subclass)
    assert type(Device(chip)) is type(device)
