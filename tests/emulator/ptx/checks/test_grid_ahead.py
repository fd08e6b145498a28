"""Programmatic dependent launches: who touches what the grid ahead still uses must wait for its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchError, RaceError

WAIT = "  griddepcontrol.wait;\n"
TEXT = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 in, .param .u64 out)
{{
  .reg .b64 %in, %out, %offset; .reg .b32 %thread, %value; .reg .pred %first;
  .shared .align 8 .b8 bar[8];
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %thread, %tid.x;
  mul.wide.u32 %offset, %thread, 4;
  add.s64 %in, %in, %offset;
  add.s64 %out, %out, %offset;
  griddepcontrol.launch_dependents;
{WAIT}  ld.global.b32 %value, [%in];
  st.global.b32 [%out], %value;
  ret;
}}
"""
READ = "  ld.global.b32 %value, [%in];\n"


def launch(text: str, prerequisite: Any, schedule: Any = "adversarial") -> np.ndarray[Any, Any]:
    """Copy 64 words; `prerequisite` names arrays by "in" and "out", or is a bool. Returns what was copied."""
    arrays = {"in": np.arange(64, dtype=np.int32), "out": np.zeros(64, np.int32)}
    used = prerequisite if isinstance(prerequisite, bool) else [arrays.get(name, name) for name in prerequisite]
    device = Device("sm_90a", schedule=schedule)
    report = device.load(text)["copy"].launch(1, 64, list(arrays.values()), prerequisite=used)
    assert report.clean, str(report)
    return arrays["out"]


@pytest.mark.parametrize("prerequisite", [False, True, ["in"], ["out"], ["in", "out"]], ids=str)
def test_everything_behind_the_wait(prerequisite: Any) -> None:
    """A kernel that waits first touches whatever it likes."""
    assert launch(TEXT, prerequisite).tolist() == list(range(64))


@pytest.mark.parametrize(("prerequisite", "verb"), [(True, "read"), (["in"], "read"), (["out"], "write")], ids=str)
def test_without_the_wait(prerequisite: Any, verb: str) -> None:
    """Who does not wait races with the grid ahead, and is told for what to wait."""
    with pytest.raises(RaceError) as caught:
        launch(TEXT.replace(WAIT, ""), prerequisite)
    said = str(caught.value)
    assert "use by the grid ahead, which is not over before griddepcontrol.wait" in said
    assert f"{verb} by warp " in said
    assert "missing edge: no griddepcontrol.wait by warp " in said
    assert "hint: execute griddepcontrol.wait before anything" in said
    assert launch(TEXT.replace(WAIT, ""), False).tolist() == list(range(64)), "alone, it is a launch like any other"


def test_what_is_ready_may_be_read_before() -> None:
    """Memory that the grid ahead does not use may be touched before the wait, other memory not."""
    early = TEXT.replace(WAIT, "").replace(READ, READ + WAIT)
    assert launch(early, ["out"]).tolist() == list(range(64))
    with pytest.raises(RaceError, match=r"no griddepcontrol.wait by warp \d"):
        launch(early, ["in"])


def test_one_warp_waits_for_all() -> None:
    """A barrier behind the wait of one warp serves the others; without it they have not heard of the end."""
    alone = "  setp.lt.u32 %first, %thread, 32;\n  @!%first bra BEHIND;\n" + WAIT + "BEHIND:\n"
    assert launch(TEXT.replace(WAIT, alone + "  bar.sync 0;\n"), True).tolist() == list(range(64))
    with pytest.raises(RaceError, match=r"no griddepcontrol.wait by warp 1, nor a barrier behind one"):
        launch(TEXT.replace(WAIT, alone), True)


def test_bad_arguments() -> None:
    """What is no buffer and no argument is refused."""
    with pytest.raises(LaunchError, match=r"prerequisite\[0\]='str' is not allowed; legal: a Buffer, or an array"):
        launch(TEXT, ["else"])
