"""What ``tilekit doctor`` says of AMD GPUs: those that HIP finds, and the assembler for them."""

from __future__ import annotations

from typing import Any

__all__ = ["amd_section"]

_PROBE = "s_endpgm\n"


def amd_section() -> dict[str, Any]:
    """Return the AMD GPUs and the assembler, or why there are none.

    Nothing here stands in the way of anything: there are no kernels for AMD GPUs yet.
    """
    return {**_gpus(), **_assembler()}


def _gpus() -> dict[str, Any]:
    from tilekit.emulator.gcn.chips import CHIPS
    from tilekit.errors import HipError
    from tilekit.runtime import hip

    try:
        found = hip.devices()
    except HipError as error:
        return {"none": error.message}
    section = {}
    for gpu in found:
        known = "" if gpu.chip in CHIPS else f" (no chip of tilekit's: those are {', '.join(CHIPS)})"
        features = f":{gpu.features}" if gpu.features else ""
        section[f"hip:{gpu.ordinal}"] = (
            f"{gpu.name}, {gpu.chip}{features}{known}, {gpu.compute_units} CUs, {gpu.memory / 2**30:.0f} GiB"
        )
    return section or {"none": "the ROCm runtime finds no device"}


def _assembler() -> dict[str, Any]:
    from tilekit.emulator.gcn.chips import CHIPS
    from tilekit.errors import TilekitError
    from tilekit.runtime.amdgcn import Amdgcn

    try:
        assembler = Amdgcn()
    except TilekitError as error:
        return {"assembler": f"none: {error.message}"}
    words = []
    for chip in CHIPS:
        try:
            assembler.build(_PROBE, chip, "an empty kernel")
            words.append(chip)
        except TilekitError as error:
            words.append(f"not {chip} ({' '.join(error.message.splitlines()[:2])})")
    return {"assembler": f"{assembler.id}, {assembler.tools.assembler[0]}", "assembler targets": ", ".join(words)}
