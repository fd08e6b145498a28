"""The matmul by a warp's matrix instruction with a role for the copy engine: exact on the emulator, and its rules."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.errors import ConfigError
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.sm_80.config import AmpereConfig
from tilekit.kernels.matmul.sm_120a.config import Rtx50Config
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.targets import target
from tilekit.tile_io.tma import TmaLoader

TYPES = ("bfloat16", "float16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")
TILES = (((128, 128), (2, 2)), ((64, 128), (1, 4)), ((64, 64), (2, 2)), ((128, 64), (2, 4)), ((32, 64), (2, 1)))


def run(random: np.random.Generator) -> None:
    """A product whose every argument is random, in a poisoned output; small whole numbers, so that sums are exact."""
    dtype = np.dtype(getattr(ml_dtypes, name := str(random.choice(TYPES)), None) or name)
    step = 16 // dtype.itemsize
    m, n, k = int(random.integers(1, 200)), step * int(random.integers(1, 20)), step * int(random.integers(1, 40))
    majors = [str(random.choice(["k", "mn"])) if dtype.itemsize == 2 else "k" for _ in range(2)]
    if majors[0] == "mn":
        m = -(-m // step) * step
    batch = (int(random.choice([1, 3])),) if random.integers(3) == 0 else ()
    a, b = (random.integers(-2, 3, (*batch, *shape)) for shape in ((m, k), (k, n)))
    expected = (a @ b).astype(np.float32)
    given: dict[str, Any] = {"precision": "tf32"} if dtype == np.float32 else {}
    if random.integers(2):
        given["bias"] = random.integers(-4, 5, n).astype(np.float32)
        expected += given["bias"]
    if random.integers(2):
        given["residual"], given["beta"] = random.integers(-4, 5, expected.shape).astype(np.float32), 1.0
        expected += given["residual"]
    operands = [
        matrix.astype(dtype)
        if major == "k"
        else np.ascontiguousarray(matrix.astype(dtype).swapaxes(-1, -2)).swapaxes(-1, -2)
        for matrix, major in zip((a, b.swapaxes(-1, -2)), majors, strict=True)
    ]
    operands = [np.ascontiguousarray(one) if major == "k" else one for one, major in zip(operands, majors, strict=True)]
    tile, grid = TILES[random.integers(len(TILES))]
    config = Rtx50Config(
        tile=tile, grid=grid, driver="warp_specialized", split_k=int(random.choice([1, 1, 2, 3])), stages=2
    )
    out = np.full((*batch, m, n + 4), np.nan, np.float32)
    tilekit.matmul(
        operands[0], operands[1].swapaxes(-1, -2), out=out[..., :n], target="sm_120a", config=config, **given
    )
    np.testing.assert_array_equal(out[..., :n], expected, err_msg=f"{config} {dtype} {majors} {m}x{n}x{k}")
    assert np.isnan(out[..., n:]).all()


@pytest.mark.parametrize("seed", range(4))
def test_random_products(seed: int) -> None:
    """Types, layouts, extents, batches, epilogues, tiles and shares at random."""
    run(np.random.default_rng(seed))


@pytest.mark.breadth
@pytest.mark.parametrize("seed", range(4, 150))
def test_further_random_products(seed: int) -> None:
    """The same, more of them."""
    run(np.random.default_rng(seed))


def test_groups_of_rows() -> None:
    """A group's tiles end where it does; rows of the next group that were loaded, too, are multiplied in vain."""
    random = np.random.default_rng(1)
    ends = np.array([5, 5, 70, 90], np.int32)
    a, b = random.integers(-2, 3, (90, 96)).astype(np.float16), random.integers(-2, 3, (4, 96, 64)).astype(np.float16)
    config = Rtx50Config(tile=(64, 64), driver="warp_specialized")
    found = tilekit.grouped_matmul(a, b, ends, target="sm_120a", config=config, out_dtype="f32")
    parts = zip(np.split(a, ends[:-1]), b, strict=True)
    np.testing.assert_array_equal(
        found, np.concatenate([r.astype(np.float32) @ m.astype(np.float32) for r, m in parts])
    )


@pytest.mark.parametrize("dtype", ["bf16", "s8", "e4m3"])
@pytest.mark.parametrize(("tile", "grid"), TILES)
def test_assembles_without_local_memory(dtype: str, tile: tuple[int, int], grid: tuple[int, int]) -> None:
    """ptxas keeps everything in registers, and the copies need no stack."""
    spec = MatmulSpec(a_dtype=dtype, b_dtype=dtype)  # type: ignore[arg-type]
    config = Rtx50Config(tile=tile, grid=grid, driver="warp_specialized")
    kernel = compiled(spec, config, target("sm_120a"), MatmulKernel)
    assert "cp.async.bulk.tensor.2d.shared::cta" in kernel.ptx
    assert "setmaxnreg" not in kernel.ptx
    resources = assemble(kernel.ptx, "sm_120a", kernel_name=kernel.name).resources
    assert (resources.stack_bytes, resources.spill_store_bytes) == (0, 0)
    assert "inputs.full" in kernel.explain()
    assert "beside one that loads" in str(config)


def test_what_it_asks_for() -> None:
    """A chip with a copy engine, and rows that it loads: else the nearest driver is named."""
    half = np.zeros((16, 36), np.float16)
    with pytest.raises(ConfigError, match=r"sm_80 lacks.*nearest: driver='multistage'"):
        tilekit.matmul(half, half.T, target="sm_80", config=AmpereConfig(driver="warp_specialized"))
    with pytest.raises(ConfigError, match=r"rows of whole 16 bytes, and there are a's of 8, b's of 8.*'multistage'"):
        tilekit.matmul(half, half.T, target="sm_120a", config=Rtx50Config(driver="warp_specialized"))


def test_components_of_the_callers() -> None:
    """A loader of one's own stands in the load role; where all warps are one role it is refused, not passed over."""
    a = np.random.default_rng(2).integers(-2, 3, (64, 64)).astype(np.float16)
    made = []

    def loader(w: Any, tile: Any, **how: Any) -> TmaLoader:
        made.append(tile.name)
        return TmaLoader(w, tile, **how)

    own = OwnComponents(loader_a=loader)
    config = Rtx50Config(tile=(64, 64), driver="warp_specialized")
    found = tilekit.matmul(a, a.T, target="sm_120a", out_dtype="f32", config=config, components=own)
    np.testing.assert_array_equal(found, a.astype(np.float32) @ a.T.astype(np.float32))
    assert made == ["a"]
    with pytest.raises(ConfigError, match=r"loader_a of the caller's loads.*nearest: driver='warp_specialized'"):
        tilekit.matmul(a, a.T, target="sm_120a", config=Rtx50Config(tile=(64, 64)), components=own)


def test_tuning_tries_it() -> None:
    """The model has no figures of it, so the picker leaves it to tuning."""
    named = target("sm_120a")
    model = platform(named).model
    assert all(config.driver == "multistage" for config in candidates(MatmulSpec(), named))
    assert any(config.driver == "warp_specialized" for config in model.tuning_candidates(MatmulSpec(), named))
    assert not any(c.driver == "warp_specialized" for c in model.tuning_candidates(MatmulSpec(), target("sm_80")))
