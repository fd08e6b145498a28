"""Every sparse matrix instruction against NumPy; the layout is that of AMD's matrix instruction calculator.

For gfx950's own shapes, which that does not have: two bits of index for each element of a lane, as in LLVM.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import program

from tilekit.emulator import Device, GcnSyntaxError, UnsupportedInstruction

Array = np.ndarray[Any, Any]


def kind_of(name: str, chip: str) -> Any:
    """The type of a source."""
    bytes_of = {
        "gfx942": {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
        "gfx950": {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
    }[chip]
    return {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, **bytes_of}[name]


PAIRS = [(a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
CASES = [
    *((f"f32_{m}x{m}x{k}_{t}", m, k, t, t, chips) for t in ("f16", "bf16")
      for m, k, chips in ((16, 32, "both"), (32, 16, "both"), (16, 64, "gfx950"), (32, 32, "gfx950"))),
    *((f"{'i32' if a == 'i8' else 'f32'}_{m}x{m}x{k}_{'i8' if a == 'i8' else f'{a}_{b}'}", m, k, a, b, chips)
      for a, b in [("i8", "i8"), *PAIRS]
      for m, k, chips in ((16, 64, "both"), (32, 32, "both"), (16, 128, "gfx950"), (32, 64, "gfx950"))),
]  # fmt: skip
RUNS = [(case, chip) for case in CASES for chip in ("gfx942", "gfx950") if case[5] in ("both", chip)]


def words(lanes: list[Array]) -> Array:
    """uint32[registers, 64] of a row of elements a lane."""
    return np.ascontiguousarray(np.array(lanes)).view(np.uint32).reshape(64, -1).T


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("case", "chip"), RUNS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_product(case: tuple[str, int, int, str, str, str], chip: str) -> None:
    """D += A B with A's elements where the index says, from every set of indices."""
    text, m, k, ka, kb, _ = case
    rng = np.random.default_rng(len(text) + k)
    each = k * m // 64  # elements of B that a lane has along k; of A half
    sets = 32 // each
    b = rng.integers(-4, 5, (k, m)).astype(np.float32)
    for abid, cbsz in [(n, 0) for n in range(sets)] + [(0, 1)]:
        dense = np.zeros((m, k), np.float32)
        compressed: list[Array] = []
        index = rng.integers(0, 1 << 32, 64, dtype=np.uint64)
        for lane in range(64):
            row, first = lane % m, lane // m * each
            kept, code = [], 0
            for quad in range(each // 4):
                pair = sorted(rng.choice(4, 2, replace=False).tolist())
                for at in pair:
                    value = float(rng.integers(-4, 5))
                    dense[row, first + 4 * quad + at] = value
                    code |= at << 2 * len(kept)
                    kept.append(value)
            compressed.append(np.array(kept, np.float32).astype(kind_of(ka, chip)))
            place = 0 if cbsz else abid
            mask = ((1 << each) - 1) << each * place
            index[lane] = int(index[lane]) & ~mask | code << each * place
        lanes_b = [
            b[lane // m * each : (lane // m + 1) * each, lane % m].astype(kind_of(kb, chip)) for lane in range(64)
        ]
        ra, rb = words(compressed), words(lanes_b)
        count = m * m // 64
        result: Any = np.int32 if ka == "i8" else np.float32
        c = rng.integers(-9, 9, (count, 64)).astype(result)
        memory = np.concatenate([ra, rb, index.astype(np.uint32)[None], c.view(np.uint32)])
        rows = {"a": (8, len(ra)), "b": (16, len(rb)), "x": (24, 1), "d": (32, count)}
        names = {name: f"v{at}" if size == 1 else f"v[{at}:{at + size - 1}]" for name, (at, size) in rows.items()}
        registers = [at + n for at, size in rows.values() for n in range(size)]
        loads = "\n".join(
            f"s_add_u32 s6, s2, {256 * n}\ns_addc_u32 s7, s3, 0\nglobal_load_dword v{r}, v1, s[6:7]"
            for n, r in enumerate(registers)
        )
        stores = loads.replace("global_load_dword v", "global_store_dword v1, v").replace(", v1, s[6:7]", ", s[6:7]")
        body = f"""v_lshlrev_b32_e32 v1, 2, v0
            {loads}
            s_waitcnt vmcnt(0)
            v_smfmac_{text} {names["d"]}, {names["a"]}, {names["b"]}, {names["x"]} cbsz:{cbsz} abid:{abid}
            s_nop 15
            s_nop 7
            {stores}"""
        assert Device(chip).load(program(body, chip))["k"].launch(1, 64, [memory]).clean
        found = memory[-count:].view(result)
        product = dense @ b
        for lane in range(64):
            for r in range(count):
                i = 4 * (lane // 16) + r if m == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
                assert found[r, lane] == product[i, lane % m] + c[r, lane], (lane, r, abid, cbsz)


@pytest.mark.parametrize(
    ("text", "chip", "message"),
    [
        ("v_smfmac_f32_16x16x32_f16 v[8:11], v[2:3], v[4:7], v12 abid:4", "gfx942", "legal: 0 to 3"),
        ("v_smfmac_f32_16x16x128_fp8_fp8 v[8:11], v[2:5], v[16:23], v12 abid:1", "gfx950", "legal: 0 to 0"),
        (
            "v_smfmac_f32_16x16x64_f16 v[8:11], v[2:5], v[16:23], v12",
            "gfx942",
            "of gfx950|not known",
        ),
        (
            "v_smfmac_f32_16x16x32_f16 v[8:11], v[2:5], v[4:7], v12",
            "gfx942",
            "2 vector registers|takes 2",
        ),
    ],
)
def test_refused(text: str, chip: str, message: str) -> None:
    """Sets of indices that a register does not have, other chips' shapes, wrong numbers of registers."""
    with pytest.raises((UnsupportedInstruction, GcnSyntaxError), match=message):
        Device(chip).load(program(text, chip))
