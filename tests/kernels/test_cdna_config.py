"""The configs of AMD chips: rules, picks, what is assembled of them, and what `explain` shows."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.dtypes import BF16, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, F16, F32
from tilekit.emulator.gcn.binary.code_object import CodeObject
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.gfx942.config import Cdna3Config
from tilekit.kernels.matmul.gfx950.config import Cdna4Config
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates, default_config, pick
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.runtime.resources import GcnResources
from tilekit.targets import GFX942, GFX950, Target

CHIPS = (GFX942, GFX950)
KINDS = {GFX942: Cdna3Config, GFX950: Cdna4Config}
ON_EACH = pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)

EVERYTHING = ElementwiseSpec("value", F32, "gelu", residual=F32, scale_a=True, scale_b=True)
SPECS = (
    MatmulSpec(),
    MatmulSpec(F16, F16, F32, "mn", "mn", batched=True, functions=EVERYTHING, store="direct"),
    MatmulSpec(out_dtype=F32, b_major="mn", functions=EVERYTHING),
    MatmulSpec(F16, F16, F16, a_load=2, b_load=4, store="direct", functions=ElementwiseSpec(bias=BF16)),
    MatmulSpec(groups="ends"),
)
"""The plainest, and those with the most to hold beside the sums."""

OWN = {GFX942: (E4M3FNUZ, E5M2FNUZ), GFX950: (E4M3, E5M2)}
"""8-bit floats that a chip multiplies."""


def narrow(chip: Target) -> tuple[MatmulSpec, ...]:
    """Products of 8-bit floats, rows along K and across."""
    a, b = OWN[chip]
    scaled = ElementwiseSpec(bias=F32, scale_a=True, scale_b=True)
    return MatmulSpec(a, b), MatmulSpec(b, a, F32, "mn", "mn", functions=scaled, store="direct")


@pytest.mark.sampled(one_in=18)
@ON_EACH
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_sample_assembles(chip: Target, spec: MatmulSpec) -> None:
    """Some of the configs that the picker may choose: no scratch, the registers that the waves have, LDS as planned."""
    every = candidates(spec, chip)
    largest = sorted(every, key=lambda config: -config.accumulators)[:1]  # type: ignore[attr-defined]
    for config in (*largest, *every[len(spec.name) % 29 :: 331]):
        check_assembled(spec, config, chip)


@pytest.mark.breadth
@ON_EACH
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_candidate_assembles(chip: Target, spec: MatmulSpec) -> None:
    """All of them."""
    for config in candidates(spec, chip):
        check_assembled(spec, config, chip)


@ON_EACH
def test_a_sample_of_8_bit_floats_assembles(chip: Target) -> None:
    """The same of 8-bit floats."""
    for spec in narrow(chip):
        every = candidates(spec, chip)
        largest = sorted(every, key=lambda config: -config.accumulators)[:1]  # type: ignore[attr-defined]
        for config in (*largest, *every[3::337]):
            check_assembled(spec, config, chip)


@pytest.mark.breadth
@ON_EACH
def test_every_candidate_of_8_bit_floats_assembles(chip: Target) -> None:
    """All of them."""
    for spec in narrow(chip):
        for config in candidates(spec, chip):
            check_assembled(spec, config, chip)


DRIVEN: tuple[tuple[Target, dict[str, Any]], ...] = (
    (GFX950, {"driver": "ping_pong", "tile": (256, 256)}),
    (GFX950, {"driver": "interleaved", "tile": (256, 256)}),
    (GFX942, {"driver": "ping_pong", "tile": (256, 256)}),
    (GFX942, {"driver": "interleaved"}),
)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(("chip", "fields"), DRIVEN, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("spec", [SPECS[0], SPECS[4]], ids=lambda spec: spec.name)
def test_drivers_without_roles_assemble(chip: Target, fields: dict[str, Any], spec: MatmulSpec) -> None:
    """Each driver's largest tile, with sums shared and in groups: no scratch, LDS that holds tiles alone."""
    for more in ({}, {"split_k": 2}):
        config = KINDS[chip](**fields, **more)
        if config.legal(chip, spec):
            check_assembled(spec, config, chip)
            assert {array.kind for array in trace(spec, config, chip).shared} == {"tile"}
        else:
            assert spec.groups or config.resolved_stages(chip, spec) == 1


def check_assembled(spec: MatmulSpec, config: Any, chip: Target) -> None:
    """Trace, assemble, link, and compare what the code object says with the config and with the text's own metadata."""
    assert isinstance(config, CdnaConfig)
    text = trace(spec, config, chip)
    built = assemble(text.assembly, chip.name, kernel_name=text.name)
    used, linked = built.resources, CodeObject.read(built.image).kernels[text.name]
    assert isinstance(used, GcnResources)
    assert used.stack_bytes == linked.metadata[".private_segment_fixed_size"] == 0, config
    assert not re.search(r"\bscratch_(load|store)", text.assembly), config
    assert used.registers <= 512 // -(-config.waves // 4), config
    both, agprs = (linked.metadata[f".{kind}_count"] for kind in ("vgpr", "agpr"))
    # Registers are granted in eights, and those of sums begin at a multiple of four.
    assert both <= used.registers < both + 8, config
    assert agprs <= used.agprs < agprs + 8, config
    assert used.vgprs <= 256 >= agprs, config
    assert config.accumulators <= (agprs or both), config
    lds = config.memory(spec).size(text.stages)
    assert used.static_shared_bytes == linked.metadata[".group_segment_fixed_size"] == text.shared_bytes == lds, config
    assert text.launch_bytes == 0
    assert config.waves * 64 == text.threads


@ON_EACH
def test_the_picker_takes_large_tiles_for_large_outputs(chip: Target) -> None:
    """And small ones where few tiles would leave compute units idle; all picks are candidates, and legal."""
    for spec in SPECS:
        for m, n, k in ((8192, 8192, 8192), (16, 8192, 4096), (64, 64, 64), (4096, 16, 512)):
            config = pick(spec, chip, m=m, n=n, k=k)
            assert type(config) is KINDS[chip]
            assert not config.problems(chip, spec)
    most, least = (pick(MatmulSpec(), chip, m=m, n=m, k=4096).tile for m in (16384, 256))
    assert most[0] * most[1] >= 65536 // 2 > least[0] * least[1]
    drivers = [pick(MatmulSpec(), chip, m=m, n=m, k=m).driver for m in (16384, 2048, 128)]
    large = "ping_pong" if chip is GFX942 else "interleaved"  # whose 64 KB of LDS have one stage of the largest tile
    assert drivers == [large, "interleaved", "warp_specialized"]
    assert default_config(MatmulSpec(), chip).legal(chip, MatmulSpec())


@ON_EACH
def test_a_ping_pong_turns_operands_round(chip: Target) -> None:
    """Its tightest configs with elements on their way to registers assemble, and larger ones are refused."""
    for spec in (MatmulSpec(*OWN[chip], a_major="mn", b_major="mn"), SPECS[1]):
        kinds = [KINDS[chip](driver="ping_pong", tile=tile, mma_columns=2) for tile in ((256, 128), (256, 256))]
        check_assembled(spec, kinds[0], chip)
        with pytest.raises(ConfigError, match=r"registers: 128 accumulators .* over the 256(?s:.*)nearest: tile="):
            tilekit.compile(spec, chip.name, kinds[1])


BAD: tuple[tuple[Target, dict[str, Any], str], ...] = (
    (GFX950, {"tile": (100, 64)}, r"tile M=100: a multiple of 128(?s:.*)nearest: tile=\(128, 64\)"),
    (GFX950, {"tile": (128, 40)}, r"tile N=40: a multiple of 32(?s:.*)nearest: tile=\(128, 32\)|tile=\(128, 64\)"),
    (
        GFX950,
        {"tile": (256, 256)},
        r"256 accumulators of a lane and 96 others are 96 over the 256(?s:.*)nearest: tile=",
    ),
    (
        GFX942,
        {"tile": (256, 128), "k_group": 2},
        r"1 stage of 98304 B(?s:.*)32772 B over the 65536 B(?s:.*)nearest: tile=",
    ),
    (
        GFX942,
        {"tile": (128, 64), "stages": 3},
        r"stages=3: 1 to 2 fit \(8204 B over the 65536 B(?s:.*)nearest: stages=2",
    ),
    (GFX950, {"in_flight": 1, "stages": 1}, r"stages=1: 2 to \d fit \(in_flight=1 keeps"),
    (GFX950, {"load_waves": 3}, r"load_waves=3: 1, 2, 4 or 8(?s:.*)nearest: load_waves="),
    (
        GFX950,
        {"driver": "other"},
        r"driver='other': 'ping_pong', 'warp_specialized' or 'interleaved'; nearest: driver=",
    ),
    (GFX950, {"counters": 3}, r"counters=3: 1 or 2 counters a stage, or None; nearest: counters=2"),
    (GFX950, {"mma_columns": 3}, r"mma_columns=3: 1, 2, 4 or 8 waves side by side, or None; nearest: mma_columns=4"),
    (GFX950, {"mma_columns": 8}, r"mma_columns=8: 4 waves multiply, and are a grid; nearest: mma_columns=4"),
    (
        GFX950,
        {"driver": "ping_pong", "load_waves": 4},
        r"load_waves=4 with driver='ping_pong': all of its waves load(?s:.*)nearest: driver='warp_specialized'",
    ),
    (GFX950, {"driver": "interleaved", "counters": 1}, r"counters=1 with driver='interleaved': all of its waves"),
    (GFX942, {"driver": "ping_pong", "in_flight": 1}, r"in_flight=1 with driver='ping_pong'"),
    (
        GFX950,
        {"driver": "ping_pong", "mma_waves": 1},
        r"mma_waves=1: a ping-pong has two groups(?s:.*)nearest: mma_waves",
    ),
    (
        GFX950,
        {"driver": "ping_pong", "tile": (64, 128)},
        r"tile M=64: a multiple of 128 up to 256 \(2 waves multiply 32 rows each of each half, 8 load 128 at once, in "
        r"halves\); nearest: tile=\(128, 128\)",
    ),
    (
        GFX942,
        {"driver": "interleaved", "tile": (256, 256)},
        r"2 stages of 65536 B(?s:.*)65536 B over the 65536 B(?s:.*)nearest: tile=\(128, 128\)",
    ),
    (
        GFX942,
        {"driver": "ping_pong", "tile": (256, 256), "stages": 2},
        r"stages=2: 1 to 1 fit \(65536 B over the 65536 B(?s:.*)nearest: stages=1",
    ),
    (
        GFX950,
        {"driver": "ping_pong", "stages": 3},
        r"stages=3: 1 to 2 of a ping-pong \(one is overwritten(?s:.*)stages=2",
    ),
    (GFX950, {"driver": "interleaved", "stages": 1}, r"stages=1: 2 to 2 fit \(driver='interleaved' overwrites one"),
    (
        GFX950,
        {"driver": "ping_pong", "tile": (256, 256), "k_group": 2, "stages": 1},
        r"registers: 128 accumulators of a lane and 224 others are 96 over the 256(?s:.*)the operands in registers are",
    ),
)


ACROSS = "and is turned round in registers, of which it has none left; nearest: driver='ping_pong'"
ODD = r"a's rows, at multiples of 2 bytes, go through registers, of which it has none left(?s:.*)driver='ping_pong'"


@pytest.mark.parametrize(
    ("spec", "driver", "words"),
    [
        (MatmulSpec(b_major="mn"), "interleaved", f"b is contiguous along N, {ACROSS}"),
        (MatmulSpec(a_major="mn"), "interleaved", f"a is contiguous along M, {ACROSS}"),
        (MatmulSpec(a_load=2), "interleaved", ODD),
    ],
    ids=["b across", "a across", "odd rows"],
)
def test_what_drivers_cannot_load(spec: MatmulSpec, driver: str, words: str) -> None:
    """Operands that a driver's loads do not take are refused, with a driver that takes them."""
    for chip, kind in KINDS.items():
        with pytest.raises(ConfigError, match=words):
            tilekit.compile(spec, chip.name, kind(driver=driver))  # type: ignore[arg-type]


@pytest.mark.parametrize(("chip", "fields", "words"), BAD, ids=lambda value: str(value)[:30])
def test_what_does_not_fit(chip: Target, fields: dict[str, Any], words: str) -> None:
    """Each is refused with what is too large, by how much, and the nearest that fits, which does."""
    with pytest.raises(ConfigError, match=words):
        tilekit.compile(MatmulSpec(), chip.name, KINDS[chip](**fields))


def test_configs_are_one_chip_s_own() -> None:
    """A config of another chip is refused with the kind that this one takes."""
    with pytest.raises(ConfigError, match="Cdna4Config is for gfx950; for gfx942 pass a Cdna3Config"):
        tilekit.compile(MatmulSpec(), "gfx942", tilekit.Cdna4Config())
    with pytest.raises(ConfigError, match="MatmulConfig is for sm_90a; for gfx950 pass a Cdna4Config"):
        tilekit.compile(MatmulSpec(), "gfx950", tilekit.MatmulConfig())


@ON_EACH
def test_types_that_are_not_there(chip: Target) -> None:
    """8-bit floats of the other chip, with the chip's own; tf32, 8-bit outputs, sums that are f32 anyway."""
    mine, other = OWN[chip], OWN[GFX950 if chip is GFX942 else GFX942]
    for one, own in zip(other, mine, strict=True):
        why = "FNUZ, not of the OCP" if chip is GFX942 else "the OCP, not of FNUZ"
        with pytest.raises(ArgumentError, match=rf"a is {one}: .*those of {why}; nearest: {own} \(.*TK-MM-001"):
            tilekit.compile(MatmulSpec(one, one), chip.name)
        array = np.zeros((16, 16), one.numpy)
        with pytest.raises(ArgumentError, match=rf"a is {one}: .*nearest: {own} .*TK-MM-001"):
            tilekit.matmul(array, array, target=chip.name)
    with pytest.raises(ArgumentError, match=r"e4m3fnuz and b is e4m3: tensor cores multiply.*TK-MM-001"):
        tilekit.compile(MatmulSpec(E4M3FNUZ, E4M3), chip.name)
    with pytest.raises(
        ArgumentError, match=r"bf16 by bf16, f16 by f16, s8 by s8, or .*; nearest: both bf16.*TK-MM-001"
    ):
        tilekit.compile(MatmulSpec(F32, F32, precision="tf32"), chip.name)
    with pytest.raises(ArgumentError, match=r"out_dtype=e4m3: .* writes bf16, f16 or f32.*TK-MM-002"):
        tilekit.compile(MatmulSpec(out_dtype=E4M3), chip.name)
    with pytest.raises(ArgumentError, match=r"accumulation='promoted' on gfx9.*nearest: 'fast'.*TK-MM-027"):
        tilekit.compile(MatmulSpec(*mine, accumulation="promoted"), chip.name)


@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
def test_fnuz_is_amd_s(chip: str) -> None:
    """NVIDIA's chips refuse it with the type that they have."""
    with pytest.raises(ArgumentError, match=rf"a is e5m2fnuz: of 8-bit floats {chip} multiplies .*nearest: e5m2 \(.*"):
        tilekit.compile(MatmulSpec(E5M2FNUZ, E4M3FNUZ), chip)


@ON_EACH
def test_what_loads_cannot_take(chip: Target) -> None:
    """A kernel for rows of 16 bytes refuses others, with the one to build; so do loads rows too far apart."""
    kernel = tilekit.compile(MatmulSpec(), chip.name)
    a, b = (np.zeros((8, 12), ml_dtypes.bfloat16) for _ in range(2))
    with pytest.raises(ArgumentError, match=r"multiples of 8 bytes only(?s:.*)MatmulSpec\(a_load=8\).*TK-MM-016"):
        kernel.bind(a, b.T)
    far = np.empty((2, 1 << 25), ml_dtypes.bfloat16)[:, :16]
    with pytest.raises(ArgumentError, match=r"rows 33554432 elements apart(?s:.*)nearest: \d+ elements.*TK-LOAD-001"):
        tilekit.matmul(far, np.zeros((16, 8), ml_dtypes.bfloat16), target=chip.name, config=KINDS[chip](tile=(128, 64)))


@pytest.mark.parametrize(("chip", "fields"), DRIVEN, ids=lambda value: str(value)[:60])
def test_explain_without_roles(chip: Target, fields: dict[str, Any]) -> None:
    """Of every driver: registers as the code object has them, no bank conflict, all waves drawn, most of the peak."""
    kernel = tilekit.compile(MatmulSpec(), chip.name, KINDS[chip](**fields))
    page, used = kernel.explain(), kernel.resources
    assert isinstance(used, GcnResources)
    vgprs, agprs = map(int, re.search(r"registers +(\d+) VGPRs, (\d+) AGPRs", page).groups())  # type: ignore[union-attr]
    assert vgprs <= used.vgprs <= vgprs + 8
    assert agprs <= used.agprs <= agprs + 8
    found = re.findall(r"^  [ab] (read|write) +(\d+) +(\d+) +(\d+)$", page, re.M)
    assert len(found) == 4
    assert all(int(passes) > 0 == int(conflicts) for _, _, passes, conflicts in found)
    waves = 8 if fields["driver"] == "ping_pong" else 4
    assert re.findall(r"^ +wave (\d+) ", page, re.M) == [*map(str, sorted(range(waves), key=lambda w: (w % 4, w)))]
    busy = re.search(r"loop +\d+ clocks a k-block, matrix cores busy (\d+)%", page)
    assert busy is not None
    assert int(busy[1]) >= 89
    assert "half of them in each half of the tile" in page


@ON_EACH
@pytest.mark.parametrize("majors", ["kk", "kn", "mn"])
def test_explain(chip: Target, majors: str) -> None:
    """Registers as the code object has them, LDS without a conflict, and a picture of every wave that multiplies."""
    spec = MatmulSpec(a_major="k" if majors[0] == "k" else "mn", b_major="k" if majors[1] == "k" else "mn")
    kernel = tilekit.compile(spec, chip.name, KINDS[chip](tile=(128, 64), mma_waves=2))
    page, used = kernel.explain(), kernel.resources
    assert isinstance(used, GcnResources)
    vgprs, agprs = map(int, re.search(r"registers +(\d+) VGPRs, (\d+) AGPRs", page).groups())  # type: ignore[union-attr]
    assert 64 <= vgprs <= used.vgprs <= vgprs + 8
    assert agprs == used.agprs
    found = re.findall(r"^  [ab] (read|write) +(\d+) +(\d+) +(\d+)$", page, re.M)
    assert len(found) == 4
    assert all(int(passes) > 0 == int(conflicts) for _, _, passes, conflicts in found)
    assert re.findall(r"^ +wave (\d+) ", page, re.M) == ["0", "1"]
    assert re.search(r"loop +\d+ clocks a k-block, matrix cores busy \d+%", page)


@ON_EACH
def test_text_is_the_chip_s(chip: Target) -> None:
    """The kernel object shows AMDGCN, and says that there is no PTX."""
    kernel = tilekit.compile(MatmulSpec(), chip.name)
    assert "v_mfma_f32_16x16x" in kernel.assembly
    assert "v_mfma_f32_16x16x" in kernel.isa
    with pytest.raises(ArgumentError, match=r"has no PTX: the instruction set of gfx\d+ is gcn; nearest: .assembly"):
        _ = kernel.ptx
    stores = [line for line in kernel.assembly.splitlines() if "global_store" in line]
    assert stores
    assert all("dwordx2" in line for line in stores)
    assert list(islice((line for line in kernel.assembly.splitlines() if "scratch_" in line), 1)) == []
