"""The rules of a Blackwell config: each is found, and the change it suggests is legal."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_specs import all_specs

import tilekit
from tilekit.dtypes import BF16, E4M3, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime import driver
from tilekit.targets import SM_90A, SM_100A

CHANGE = re.compile(r"(\w+)=(\([^)]*\)|[^,]+)")


def suggested(config: BlackwellConfig, problem: str) -> BlackwellConfig:
    """The config with the change that a problem's text names."""
    _, found, changes = problem.partition("; nearest: ")
    assert found, problem
    return dataclasses.replace(config, **{name: ast.literal_eval(value) for name, value in CHANGE.findall(changes)})


SINGLE = {"cta_group": 1, "cluster": (1, 1)}
N_MAJOR_8BIT = {"a_dtype": E4M3, "b_dtype": E4M3, "b_major": "mn", "out_dtype": F32}

RULES = [
    ({"cta_group": 0}, {}, "cta_group=0: a matrix instruction spans 1 CTA or a pair", "cta_group", 1),
    ({"cta_group": 4}, {}, "cta_group=4", "cta_group", 2),
    ({"cluster": (0, 1)}, {}, "cluster=(0, 1): 1 to 8 CTAs", "cluster", None),
    ({"cluster": (4, 4)}, {}, "cluster=(4, 4): 1 to 8 CTAs", "cluster", (2, 4)),
    ({"cluster": (1, 1)}, {}, "with cta_group=2 its CTAs along M come in pairs", "cluster", (2, 1)),
    ({"cluster": (3, 1)}, {}, "come in pairs", "cluster", (4, 1)),
    ({"k_group": 3}, {}, "k_group=3: 1, 2 or 4 slices", "k_group", 4),
    ({"accumulator_stages": 0}, {}, "accumulator_stages=0: 1 to 4", "accumulator_stages", 1),
    ({"clc_stages": 1}, {}, "clc_stages=1: 2 to 4 claims in flight, or 0", "clc_stages", 2),
    ({"clc_stages": 9}, {}, "clc_stages=9", "clc_stages", 4),
    ({"output_buffers": 0}, {}, "output_buffers=0: 1 to 8", "output_buffers", 1),
    ({"split_k": 0}, {}, "split_k=0: 1 to 64", "split_k", 1),
    ({}, {"groups": "ends"}, "claims of tiles: groups of rows have a static schedule", "clc_stages", 0),
    ({"split_k": 2, "clc_stages": 0}, {"groups": "counts"}, "of groups of rows, each sum has one CTA", "split_k", 1),
    ({"load_order": True}, {}, "load_order=True: no warp loads a residual that could wait", "load_order", False),
    ({"raster_group": 0}, {}, "raster_group=0", "raster_group", 1),
    ({"raster_order": "M"}, {}, "raster_order='M': 'm' to walk tiles down M first, 'n' along N", "raster_order", "m"),
    ({"profile_tiles": -1}, {}, "profile_tiles=-1: 0 to 65536", "profile_tiles", 0),
    ({"l2_promotion": "512B"}, {}, "l2_promotion='512B'", "l2_promotion", "256B"),
    ({"tile": (100, 128)}, {}, "tile M=100: a CTA has 64 or 128 rows", "tile", (128, 128)),
    ({"tile": (256, 128)}, {}, "tile M=256", "tile", (128, 128)),
    ({"tile": (128, 512)}, {}, "tile N=512: a multiple of 16 up to 256 (one tcgen05.mma)", "tile", (128, 256)),
    ({"tile": (128, 0)}, {}, "tile N=0", "tile", (128, 16)),
    ({"tile": (128, 100)}, {"store": "direct"}, "tile N=100: a multiple of 16", "tile", (128, 96)),
    ({"tile": (128, 72), **SINGLE}, {"out_dtype": F32}, "tile N=72: a multiple of 16", "tile", (128, 80)),
    ({"tile": (64, 68), **SINGLE}, {"out_dtype": F32}, "tile N=68: a multiple of 8", "tile", (64, 72)),
    ({"tile": (64, 72), **SINGLE}, {"out_dtype": E4M3}, "of 16 up to 256 (the epilogue stores 16", "tile", (64, 80)),
    ({"tile": (64, 80)}, {"out_dtype": E4M3}, "of 32 up to 256 (the epilogue stores 16", "tile", (64, 96)),
    ({"tile": (128, 80)}, N_MAJOR_8BIT, "a multiple of 32 up to 256 (8-bit B with N contiguous)", "tile", (128, 96)),
    ({"tile": (64, 72), **SINGLE}, N_MAJOR_8BIT, "of 16 up to 256 (8-bit B with N contiguous)", "tile", (64, 80)),
    ({"cluster": (6, 1), "tile": (128, 128)}, {}, "B's 64 rows are fetched in 3 equal slices", "tile", None),
    (
        {"accumulator_stages": 3},
        {},
        "3 accumulators of 256 columns are 256 over the 512 columns of tensor memory",
        "accumulator_stages",
        2,
    ),
    (
        {"tile": (128, 160), "accumulator_stages": 4},
        {},
        "4 accumulators of 160 columns are 128 over",
        "accumulator_stages",
        3,
    ),
    ({"k_group": 4, "output_buffers": 8}, {}, "the output subtiles are the largest object", "tile", None),
    (
        {"k_group": 4, "cta_group": 1, "cluster": (1, 1), "output_buffers": 3},
        {},
        "1 stage of 196608 B and 49152 B of output subtiles are 13",
        "tile",
        None,
    ),
    ({"stages": 0}, {}, "stages=0: 1 to 6 fit (a ring has a stage)", "stages", 1),
    ({"stages": 7}, {}, "stages=7: 1 to 6 fit (29", "stages", 6),
    ({"stages": 25, "tile": (64, 16), **SINGLE}, {"store": "direct"}, "stages=25: 1 to 2", "stages", None),
]


@pytest.mark.parametrize(("config", "spec", "words", "field", "value"), RULES, ids=lambda v: str(v).replace(" ", ""))
def test_each_rule_is_found_and_mended(
    config: dict[str, Any], spec: dict[str, Any], words: str, field: str, value: object
) -> None:
    """A config that breaks one rule gets one problem, whose text says what is wrong and whose change mends it."""
    broken, what = BlackwellConfig(**config), MatmulSpec(**spec)
    (problem,) = broken.problems(SM_100A, what)
    assert words in problem
    better = suggested(broken, problem)
    assert better.problems(SM_100A, what) == []
    assert better != broken
    if value is not None:
        assert getattr(better, field) == value
        assert dataclasses.replace(broken, **{field: value}) == better


def test_all_problems_are_listed_at_once() -> None:
    """Independent problems come together, in one error, each with its own change; all changes together are legal."""
    broken = BlackwellConfig(cluster=(9, 1), k_group=8, clc_stages=1, accumulator_stages=0, output_buffers=0)
    with pytest.raises(ConfigError, match="5 problems") as caught:
        broken.check(SM_100A, MatmulSpec())
    assert caught.value.code == "TK-MM-006"
    mended = broken
    for problem in caught.value.problems:
        mended = suggested(mended, problem)
    assert mended.problems(SM_100A) == []


def test_each_chip_has_its_config() -> None:
    """A config is refused by name on the other chip, wherever it is passed, with the one that chip takes."""
    assert MatmulConfig().problems("sm_100a") == ["MatmulConfig is for sm_90a; for sm_100a pass a BlackwellConfig"]
    assert BlackwellConfig().problems(SM_90A) == ["BlackwellConfig is for sm_100a; for sm_90a pass a MatmulConfig"]
    with pytest.raises(ConfigError, match="for sm_90a pass a MatmulConfig"):
        tilekit.compile(MatmulSpec(), config=BlackwellConfig())
    with pytest.raises(ConfigError, match="for sm_100a pass a BlackwellConfig"):
        tilekit.compile(MatmulSpec(), target="sm_100a", config=MatmulConfig())
    with pytest.raises(ArgumentError, match="BlackwellConfig \\(sm_100a\\)"):
        tilekit.matmul(np.eye(8, dtype=np.float16), np.eye(8, dtype=np.float16), config="128x64")  # type: ignore[arg-type]


def test_the_default_takes_every_spec() -> None:
    """Whatever is computed, `compile` without a config builds a kernel for sm_100a."""
    default = tilekit.compile(MatmulSpec(), target="sm_100a").config
    assert default == BlackwellConfig()
    assert not [spec.name for spec in all_specs(SM_100A) if default.problems(SM_100A, spec)]
    assert tilekit.compile(MatmulSpec(groups="ends"), target="sm_100a").config == BlackwellConfig(clc_stages=0)


CONFIGS = st.builds(
    BlackwellConfig,
    tile=st.tuples(st.sampled_from([64, 128, 128, 64, 96, 0]), st.integers(-8, 300)),
    cluster=st.tuples(st.integers(0, 5), st.integers(0, 3)),
    cta_group=st.integers(0, 3),
    k_group=st.integers(0, 5),
    stages=st.none() | st.integers(-1, 20),
    accumulator_stages=st.integers(0, 5),
    clc_stages=st.integers(0, 5),
    output_buffers=st.integers(-1, 10),
    load_order=st.booleans(),
    raster_order=st.sampled_from(["m", "m", "n", "k"]),
    raster_group=st.none() | st.integers(-2, 30),
)
SPECS = st.builds(
    MatmulSpec,
    a_dtype=st.sampled_from([BF16, BF16]),
    out_dtype=st.sampled_from([BF16, F16, F32]),
    a_major=st.sampled_from(["k", "mn"]),
    b_major=st.sampled_from(["k", "mn"]),
    functions=st.sampled_from([ElementwiseSpec(), ElementwiseSpec("value", BF16, "gelu")]),
    store=st.sampled_from(["tma", "direct"]),
) | st.builds(
    MatmulSpec,
    st.just(E4M3),
    st.just(E4M3),
    a_major=st.sampled_from(["k", "mn"]),
    b_major=st.sampled_from(["k", "mn"]),
)


def mended(config: BlackwellConfig, spec: MatmulSpec) -> BlackwellConfig:
    """What becomes of a config when its first problem's suggestion is followed until there is none."""
    for _ in range(20):
        problems = config.problems(SM_100A, spec)
        if not problems:
            return config
        config = suggested(config, problems[0])
    raise AssertionError(f"suggestions go round in circles: {config}")


@settings(max_examples=40, deadline=None)
@given(CONFIGS, SPECS)
def test_following_suggestions_ends_in_a_legal_config(config: BlackwellConfig, spec: MatmulSpec) -> None:
    """From any config, doing what the first problem says, a few times, reaches one that can be built."""
    assert mended(config, spec).problems(SM_100A, spec) == []


@settings(max_examples=20, deadline=None)
@given(CONFIGS, SPECS)
def test_legal_configs_stay_within_the_chip(config: BlackwellConfig, spec: MatmulSpec) -> None:
    """A legal config traces to a kernel that fits, and whose shared memory is what its components said."""
    legal = mended(config, spec)
    text = trace(spec, legal, SM_100A)
    assert text.shared_bytes == legal.memory(spec).size(text.stages) <= SM_100A.shared_bytes
    assert text.threads <= 256
    assert legal.legal(SM_100A, spec)


@pytest.mark.parametrize("spec", [MatmulSpec(), MatmulSpec(functions=ElementwiseSpec(residual=BF16))], ids=str)
@pytest.mark.parametrize("clc", [0, 2, 3])
@pytest.mark.parametrize("buffers", [1, 2, 5])
@pytest.mark.parametrize("shares", [1, 2])
def test_shared_memory_is_what_the_components_say(spec: MatmulSpec, clc: int, buffers: int, shares: int) -> None:
    """The map that the components allocate is as large as the sum that the budget is computed with, to the byte."""
    config = BlackwellConfig(
        tile=(128, 64), clc_stages=clc, output_buffers=buffers, accumulator_stages=3, split_k=shares
    )
    text = trace(spec, config, SM_100A)
    assert text.shared_bytes == config.memory(spec).size(text.stages)
    free = SM_100A.shared_bytes - text.shared_bytes
    assert free < config.memory(spec).stage_bytes + 16, "another stage would fit"


def test_no_two_ctas_share_a_multiprocessor() -> None:
    """However few stages, a launch asks for so much shared memory that a second CTA finds no room beside it."""
    small = BlackwellConfig(tile=(64, 32), cluster=(1, 1), cta_group=1, stages=1)
    kernel = tilekit.compile(MatmulSpec(), target="sm_100a", config=small)
    on_an_sm, reserved = 228 * 1024, 1024
    assert kernel.text.shared_bytes < on_an_sm // 4
    assert 2 * (kernel.launch_config(1).shared_bytes + reserved) > on_an_sm
    full = tilekit.compile(MatmulSpec(), target="sm_100a")
    assert full.launch_config(2).shared_bytes == full.text.shared_bytes


def test_a_kernel_is_for_its_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel for sm_100a is not launched on a Hopper GPU: the call says what the GPU is, and what to do."""
    hopper = driver.DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 1 << 37, 1 << 26, (13, 0))
    monkeypatch.setattr(driver, "devices", lambda: (hopper,))
    kernel = tilekit.compile(MatmulSpec(), target="sm_100a")
    a = np.zeros((64, 64), BF16.numpy)
    with pytest.raises(ArgumentError) as caught:
        kernel.bind(a, a.T, device="cuda")
    assert caught.value.code == "TK-API-001"
    for words in ("target='sm_100a'", "NVIDIA H200, which is sm_90a", "build the kernel for that", "emulate sm_100a"):
        assert words in str(caught.value)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_config_names_its_group(group: int) -> None:
    """What a config says of itself is what was given, legal or not."""
    assert {1: "single CTAs", 2: "CTA pairs", 4: "cta_group 4"}[group] in str(BlackwellConfig(cta_group=group))
