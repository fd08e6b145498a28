"""The rules of a matmul config: each is found, and the change it suggests is legal."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilekit
from tilekit.dtypes import BF16, E4M3, F16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A
from tilekit.tile_io.tma import EVICT_FIRST, EVICT_LAST

CHANGE = re.compile(r"(\w+)=(\([^)]*\)|[^,]+)")


def suggested(config: MatmulConfig, problem: str) -> MatmulConfig:
    """The config with the change that a problem's text names."""
    _, found, changes = problem.partition("; nearest: ")
    assert found, problem
    return dataclasses.replace(config, **{name: ast.literal_eval(value) for name, value in CHANGE.findall(changes)})


RULES = [
    ({"consumers": 0}, {}, "consumers=0", "consumers", 2),
    ({"consumers": 4}, {}, "consumers=4", "consumers", 2),
    ({"consumers": 5, "tile": (192, 128)}, {}, "consumers=5", "consumers", 3),
    ({"schedule": "ping-pong"}, {}, "'cooperative' or 'pingpong'", "schedule", None),
    ({"schedule": "pingpong", "consumers": 1, "tile": (64, 64)}, {}, "at least 2 take turns", "consumers", 2),
    ({"schedule": "pingpong"}, {}, "over 1 consumers: 256 accumulators", "tile", (64, 256)),
    ({"schedule": "pingpong", "tile": (100, 64)}, {}, "a consumer warpgroup takes a multiple of 64", "tile", (128, 64)),
    ({"schedule": "pingpong", "tile": (320, 80), "cluster": (1, 1)}, {}, "8 more than fit", "tile", None),
    ({"schedule": "pingpong", "tile": (64, 208), "consumers": 3}, {}, "one instruction's 104", "tile", (64, 184)),
    ({"tile": (192, 208), "cluster": (1, 1), "consumers": 3}, {}, "one instruction's 104", "tile", (192, 200)),
    (
        {"tile": (192, 184), "cluster": (1, 2), "consumers": 3},
        {"groups": "ends"},
        "92 accumulators a thread are 4 more",
        "tile",
        (192, 176),
    ),
    ({"tile": (256, 160), "swap_ab": True}, {"store": "direct"}, "beside the epilogue", "tile", (256, 136)),
    ({"tile": (100, 128)}, {}, "tile M=100", "tile", (128, 128)),
    ({"tile": (0, 64)}, {}, "tile M=0", "tile", (128, 64)),
    ({"tile": (128, 100)}, {}, "tile N=100: a multiple of 8", "tile", (128, 104)),
    ({"tile": (128, 100), "cluster": (1, 1)}, {}, "tile N=100: a multiple of 8", "tile", (128, 104)),
    ({"tile": (64, 4), "cluster": (1, 1), "consumers": 1}, {}, "tile N=4: a multiple of 8", "tile", (64, 8)),
    ({"tile": (64, 8), "consumers": 1, "cluster": (3, 1)}, {}, "B's 8 rows are fetched in 3", "tile", (64, 24)),
    ({"tile": (320, 64)}, {}, "each of 2 consumer warpgroups takes a multiple of 64", "tile", (384, 64)),
    ({"tile": (128, 512)}, {}, "up to 256", "tile", (128, 256)),
    ({"tile": (128, 0)}, {}, "tile N=0", "tile", (128, 8)),
    ({"tile": (128, 100), "cluster": (1, 1)}, {"out_dtype": F32}, "a multiple of", "tile", None),
    ({"tile": (128, 36), "cluster": (1, 1)}, {"out_dtype": F32, "b_major": "mn"}, "a multiple of 8", "tile", (128, 40)),
    ({"tile": (128, 100)}, {"store": "direct"}, "tile N=100: a multiple of 8", "tile", (128, 104)),
    ({"tile": (128, 136), "cluster": (1, 1)}, {"out_dtype": E4M3}, "a multiple of 16", "tile", (128, 144)),
    ({"tile": (128, 136), "cluster": (1, 1)}, {"out_dtype": E4M3}, "box has 16 columns of e4m3", "tile", (128, 144)),
    ({"tile": (128, 20), "swap_ab": True, "cluster": (1, 1)}, {}, "tile N=20: a multiple of 8", "tile", (128, 24)),
    ({"tile": (128, 8), "swap_ab": True, "cluster": (3, 1)}, {}, "B's 8 rows are fetched in 3", "tile", (128, 24)),
    ({"k_group": 3, "tile": (128, 64)}, {}, "k_group=3: 1, 2 or 4 slices", "k_group", 4),
    ({"cluster": (0, 1)}, {}, "cluster=(0, 1): 1 to 8 CTAs", "cluster", (1, 1)),
    ({"cluster": (4, 4)}, {}, "cluster=(4, 4)", "cluster", (2, 4)),
    (
        {"tile": (128, 64), "cluster": (3, 1)},
        {"b_major": "mn"},
        "B's 64 rows are fetched in 3 equal",
        "tile",
        (128, 96),
    ),
    ({"tile": (128, 128), "cluster": (1, 3)}, {}, "A's 128 rows are fetched in 3 equal slices", "tile", None),
    ({"tile": (64, 256), "consumers": 1, "cluster": (5, 1)}, {}, "B's 256 rows are fetched in 5", "tile", None),
    ({"tile": (256, 256)}, {}, "256 accumulators a thread are", "tile", (256, 208)),
    ({"tile": (192, 256), "consumers": 3}, {}, "one instruction's 128 accumulators", "tile", None),
    ({"tile": (512, 64), "consumers": 1}, {}, "accumulators a thread", "tile", None),
    ({"tile": (256, 192)}, {"store": "direct"}, "beside the epilogue", "tile", (256, 168)),
    ({"tile": (256, 184)}, {"functions": ElementwiseSpec(bias=F32)}, "beside the epilogue", "tile", (256, 176)),
    ({"output_buffers": 0}, {}, "output_buffers=0: 1 to 8", "output_buffers", 1),
    ({"output_buffers": 99}, {}, "output_buffers=99", "output_buffers", None),
    ({"in_flight": 2}, {}, "in_flight=2: 0 or 1", "in_flight", 1),
    ({"split_k": 2}, {"groups": "counts"}, "of groups of rows, each sum has one CTA", "split_k", 1),
    ({"stream_k": -1}, {}, "stream_k=-1: 0 to 64 ranges of a tile", "stream_k", 0),
    ({"stream_k": 2}, {"groups": "ends"}, "cut when tiles are counted, before groups are", "stream_k", 0),
    (
        {"stream_k": 2, "split_k": 3},
        {},
        "split_k=3 with stream_k=2: ranges",
        "split_k",
        1,
    ),
    (
        {"stream_k": 2, "cluster_k": 2, "cluster": (1, 1), "tile": (128, 128)},
        {},
        "cluster_k=2 with stream_k=2",
        "cluster_k",
        1,
    ),
    (
        {"stream_k": 2, "tile": (128, 184), "schedule": "pingpong", "cluster": (1, 1), "output_buffers": 1},
        {"out_dtype": F32, "functions": ElementwiseSpec(residual=F32)},
        "beside the epilogue",
        "tile",
        (128, 176),
    ),
    ({"prefetch": 13}, {}, "prefetch=13: 0 to 12 k-blocks", "prefetch", 12),
    ({"prefetch": 2}, {"groups": "ends"}, "which tile is a CTA's first is read from memory", "prefetch", 0),
    ({"prefetch": 2, "cluster": (1, 1)}, {"b_load": 8}, "b is copied in pieces of 8 bytes", "prefetch", 0),
    (
        {"tile": (256, 128), "cluster": (1, 1)},
        {"store": "direct", "a_load": 4, "b_load": 2},
        "128 accumulators a thread are 32 more than fit its 224 registers beside the epilogue",
        "tile",
        (256, 96),
    ),
    ({"raster_group": 0}, {}, "raster_group=0", "raster_group", 1),
    ({"raster_order": "k"}, {}, "raster_order='k': 'm' to walk tiles down M first, 'n' along N", "raster_order", "m"),
    ({"raster_order": "n"}, {"groups": "ends"}, "groups of rows are walked down M", "raster_order", "m"),
    ({"profile_tiles": -1}, {}, "profile_tiles=-1: 0 to 65536", "profile_tiles", 0),
    ({"l2_stream": "c"}, {}, "l2_stream='c': None, 'a' or 'b'", "l2_stream", None),
    ({"l2_promotion": "512B"}, {}, "l2_promotion='512B'", "l2_promotion", "256B"),
    ({"tile": (256, 192), "output_buffers": 8}, {}, "the output subtiles are the largest", "tile", None),
    (
        {"tile": (384, 64), "consumers": 3, "output_buffers": 8},
        {},
        "output subtiles are the largest",
        "output_buffers",
        None,
    ),
    ({"stages": 5}, {}, "stages=5: 2 to 4 fit", "stages", 4),
    ({"stages": 1}, {}, "in_flight=1 holds one stage back", "stages", 2),
    ({"stages": 99, "tile": (64, 64), "consumers": 1}, {}, "stages=99: 2 to", "stages", None),
    (
        {"stages": 13, "tile": (64, 64), "consumers": 1},
        {},
        "more hide no more latency",
        "stages",
        MatmulConfig.MAX_STAGES,
    ),
]


@pytest.mark.parametrize(("config", "spec", "words", "field", "value"), RULES, ids=lambda v: str(v).replace(" ", ""))
def test_each_rule_is_found_and_mended(
    config: dict[str, Any], spec: dict[str, Any], words: str, field: str, value: object
) -> None:
    """A config that breaks one rule gets one problem, whose text says what is wrong and whose change mends it."""
    broken, what = MatmulConfig(**config), MatmulSpec(**spec)
    (problem,) = broken.problems(SM_90A, what)
    assert words in problem
    better = suggested(broken, problem)
    assert better.problems(SM_90A, what) == []
    assert better != broken
    if value is not None:
        assert getattr(better, field) == value
        assert dataclasses.replace(broken, **{field: value}) == better


def test_all_problems_are_listed_at_once() -> None:
    """Independent problems come together, in one error, each with its own change; all changes together are legal."""
    broken = MatmulConfig(tile=(100, 128), in_flight=7, output_buffers=0, cluster=(9, 1))
    with pytest.raises(ConfigError, match="4 problems") as caught:
        broken.check(SM_90A, MatmulSpec())
    assert caught.value.code == "TK-MM-006"
    mended = broken
    for problem in caught.value.problems:
        mended = suggested(mended, problem)
    assert mended.problems(SM_90A) == []


CONFIGS = st.builds(
    MatmulConfig,
    tile=st.tuples(st.integers(-64, 600), st.integers(-8, 300)),
    cluster=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    consumers=st.integers(-1, 5),
    schedule=st.sampled_from(["cooperative", "cooperative", "pingpong"]),
    stages=st.none() | st.integers(-1, 20),
    output_buffers=st.integers(-1, 12),
    in_flight=st.integers(-1, 3),
    swap_ab=st.booleans(),
    split_k=st.sampled_from([1, 1, 1, 2]),
    stream_k=st.sampled_from([0, 0, 1, 4, 65]),
    k_group=st.integers(0, 5),
    prefetch=st.sampled_from([0, 0, 0, 1, 12, 13]),
    raster_order=st.sampled_from(["m", "m", "n", "k"]),
    raster_group=st.none() | st.integers(-2, 30),
)
SPECS = st.builds(
    MatmulSpec,
    out_dtype=st.sampled_from([BF16, F16, F32, E4M3]),
    a_major=st.sampled_from(["k", "mn"]),
    b_major=st.sampled_from(["k", "mn"]),
    functions=st.sampled_from([ElementwiseSpec(), ElementwiseSpec("value", BF16, "gelu")]),
    store=st.sampled_from(["tma", "direct"]),
) | st.just(MatmulSpec(E4M3, E4M3))


def mended(config: MatmulConfig, spec: MatmulSpec) -> MatmulConfig:
    """What becomes of a config when its first problem's suggestion is followed until there is none."""
    for _ in range(20):
        problems = config.problems(SM_90A, spec)
        if not problems:
            return config
        config = suggested(config, problems[0])
    raise AssertionError(f"suggestions go round in circles: {config}")


@settings(max_examples=30, deadline=None)
@given(CONFIGS, SPECS)
def test_following_suggestions_ends_in_a_legal_config(config: MatmulConfig, spec: MatmulSpec) -> None:
    """From any config, doing what the first problem says, a few times, reaches one that can be built."""
    assert mended(config, spec).problems(SM_90A, spec) == []


@settings(max_examples=25, deadline=None)
@given(CONFIGS, SPECS)
def test_legal_configs_stay_within_the_chip(config: MatmulConfig, spec: MatmulSpec) -> None:
    """A legal config traces to a kernel whose shared memory, threads and registers fit, as its own sums said."""
    if config.problems(SM_90A, spec):
        with pytest.raises(ConfigError):
            trace(spec, config, SM_90A)
    legal = mended(config, spec)
    text = trace(spec, legal, SM_90A)
    assert text.shared_bytes == legal.memory(spec).size(text.stages) <= SM_90A.shared_bytes
    assert text.threads <= SM_90A.max_threads
    assert sum(32 * len(r.warps) * (r.registers or 0) for r in text.roles) <= SM_90A.registers


@pytest.mark.parametrize(("swapped", "stream"), [(False, "a"), (False, "b"), (True, "a"), (True, "b")])
def test_what_passes_through_l2(swapped: bool, stream: str) -> None:
    """The operand that passes through L2 is loaded to leave first, the other one last; else no load says anything."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, swap_ab=swapped)
    plain = trace(MatmulSpec(), config, SM_90A).assembly
    text = trace(MatmulSpec(), dataclasses.replace(config, l2_stream=stream), SM_90A).assembly  # type: ignore[arg-type]
    loads = re.compile(r"complete_tx::bytes(\.L2::cache_hint)? \[\w+\], \[(\w)_map, .*\], \[\w+\](?:, (\w+))?;")
    assert [hint for hint, _, _ in loads.findall(plain)] == ["", ""]
    policies = {
        operand: re.search(rf"mov\.u64 {register}, (\d+);", text) for _, operand, register in loads.findall(text)
    }
    first = (stream == "a") != swapped  # of the instruction's operands
    found = {operand: int(match[1]) for operand, match in policies.items() if match}
    assert found == dict(zip("ab", (EVICT_FIRST, EVICT_LAST) if first else (EVICT_LAST, EVICT_FIRST), strict=True))


def test_target_by_name() -> None:
    """`problems` takes a chip's name as well as the chip."""
    assert MatmulConfig().problems("sm_90a") == []
    with pytest.raises(ArgumentError, match="sm_90a"):
        MatmulConfig().problems("sm_70")


def _spec(functions: Any = None, **options: Any) -> MatmulSpec:
    made = ElementwiseSpec(**functions) if isinstance(functions, dict) else functions or ElementwiseSpec()
    return MatmulSpec(functions=made, **options)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"a_dtype": "bf16", "b_dtype": "f16"}, "TK-MM-001", "a is bf16 and b is f16"),
        ({"a_dtype": "e4m3", "b_dtype": "bf16"}, "TK-MM-001", "b to e4m3"),
        ({"a_dtype": "f32", "b_dtype": "f32"}, "TK-MM-001", "precision='tf32'"),
        ({"a_dtype": "f32", "b_dtype": "bf16"}, "TK-MM-001", "both to bf16"),
        ({"a_dtype": "f32", "b_dtype": "f32", "precision": "f32"}, "TK-MM-023", "'tf32'"),
        ({"precision": "tf32"}, "TK-MM-023", "leave it out"),
        ({"out_dtype": "e4m3", "functions": ElementwiseSpec(residual=E4M3)}, "TK-MM-002", "with a residual"),
        ({"out_dtype": "e5m2", "groups": "ends"}, "TK-MM-002", "with groups"),
        ({"a_major": "m"}, "TK-MM-003", "a_major='m'"),
        ({"b_major": "row"}, "TK-MM-003", "b_major='row'"),
        ({"functions": {"activation": "tanh"}}, "TK-MM-005", "relu, gelu, silu"),
        ({"store": "tmem"}, "TK-MM-007", "'tma' or 'direct'"),
    ],
)
def test_illegal_specs(options: dict[str, Any], code: str, words: str) -> None:
    """A pair of types, a major, an activation or a store that no kernel has is refused when the spec is made."""
    with pytest.raises(ArgumentError, match=code) as caught:
        _spec(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"a_major": "mn"}, "contiguous rows of K"), ({"b_major": "mn"}, ".T of an (N, K)")],
)
def test_majors_that_a_chip_does_not_read(options: dict[str, Any], words: str) -> None:
    """sm_90a refuses 8-bit and f32 operands whose M or N is contiguous, wherever one asks; sm_100a takes them."""
    for spec, bits in (
        (MatmulSpec("f32", "f32", precision="tf32", **options), 32),
        (MatmulSpec("e4m3", "e5m2", **options), 8),
    ):
        for call in (partial(tilekit.compile, spec), partial(pick, spec, SM_90A, m=64, n=64, k=64)):
            with pytest.raises(ArgumentError, match="TK-MM-004") as caught:
                call()
            assert words in str(caught.value)
            assert f"of {bits}-bit types sm_90a reads K-major operands only" in str(caught.value)
        assert tilekit.compile(spec, target="sm_100a").spec == spec


def test_specs_name_themselves() -> None:
    """Symbols tell kernels apart: every field that changes the text is part of the name."""
    base = MatmulSpec()
    changes: list[dict[str, Any]] = [
        {},
        {"out_dtype": F32},
        {"a_dtype": F16, "b_dtype": F16},
        {"a_major": "mn"},
        {"b_major": "mn"},
        {"batched": True},
        {"store": "direct"},
        {"out_dtype": E4M3},
        {"a_dtype": F32, "b_dtype": F32, "precision": "tf32"},
        *({"functions": ElementwiseSpec(scale=kind)} for kind in ("value", "pointer")),
        {"functions": ElementwiseSpec(bias=BF16)},
        {"functions": ElementwiseSpec(bias=F32)},
        *({"functions": ElementwiseSpec(activation=name)} for name in ("relu", "gelu", "silu")),
    ]
    names = {dataclasses.replace(base, **change).name for change in changes}
    assert len(names) == len(changes)
    assert all(name.isidentifier() for name in names)
