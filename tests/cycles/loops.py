"""Short loops for the tests, and a way to replay them on a machine of one SIMD."""

from __future__ import annotations

from collections.abc import Sequence

from tilekit.cycles import LoopReport, replay_loop

SCALED = "v_mfma_f32_16x16x32_bf16 a[{0}:{1}], v[0:3], v[4:7], a[{0}:{1}]"
"""16 clocks of the matrix core; its factors keep the vector port for 8."""


def product(number: int) -> str:
    """An MFMA on an accumulator of its own."""
    return SCALED.format(4 * number, 4 * number + 3)


def vector(number: int) -> str:
    """A VALU instruction that waits for nothing."""
    return f"v_add_f32_e32 v{100 + number}, v90, v91"


def loop(*turn: str, before: Sequence[str] = ()) -> str:
    """A loop of these instructions; the branch back is the last one."""
    return "\n".join(["start:", *before, "turn:", *turn, "s_cbranch_scc1 turn", "s_endpgm"])


def replayed(text: str, waves: int = 1, **options: object) -> LoopReport:
    """Replay on gfx950, on one SIMD unless told otherwise."""
    return replay_loop(text, **{"chip": "gfx950", "waves": waves, "simds": 1, **options})  # type: ignore[arg-type]
