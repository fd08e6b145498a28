"""The picker's model, and the page that explains a kernel."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matmul_specs import all_specs

import tilekit
from tilekit.dtypes import BF16, F32
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.hopper_model import CANDIDATES
from tilekit.kernels.matmul.picker import candidates, estimate, pick, ranked
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

EXTENT = st.integers(0, 20000)


def test_every_spec_has_candidates() -> None:
    """Whatever is computed, several legal configs are there, without and with a cluster, and none twice."""
    for spec in all_specs():
        found = list(candidates(spec, SM_90A))
        assert {config.cluster_size for config in found} == {1, 2}, spec.name
        assert len(set(found)) == len(found) >= 12
        assert not any(config.problems(SM_90A, spec) for config in found)


def test_every_candidate_is_legal_somewhere() -> None:
    """No tile of the list is refused for every spec."""
    legal = {config.tile for spec in all_specs() for config in candidates(spec, SM_90A)}
    assert legal == {config.tile for config in CANDIDATES}


@given(EXTENT, EXTENT, EXTENT, st.integers(0, 5), st.integers(1, 132))
def test_any_shape_gets_a_config(m: int, n: int, k: int, batches: int, sms: int) -> None:
    """Empty, tiny and huge problems, on few and many multiprocessors, get the candidate that the model likes best."""
    spec = MatmulSpec()
    order = ranked(spec, SM_90A, m=m, n=n, k=k, batches=batches, sms=sms)
    assert [e.total for e in order] == sorted(e.total for e in order)
    assert pick(spec, SM_90A, m=m, n=n, k=k, batches=batches, sms=sms) == order[0].config
    assert all(e.config.cluster_size <= sms for e in order)
    for e in order:
        assert e.waves * (sms // e.config.cluster_size * e.config.cluster_size) >= e.tiles
        assert e.total > 0


@given(EXTENT, EXTENT, EXTENT, st.sampled_from(["m", "n", "k", "batches"]))
def test_more_work_never_takes_less_time(m: int, n: int, k: int, grown: str) -> None:
    """The model grows with every extent."""
    shape = {"m": m, "n": n, "k": k, "batches": 1}
    larger = {**shape, grown: shape[grown] * 2 + 1}
    for config in CANDIDATES:
        before, after = (estimate(config, MatmulSpec(), SM_90A, sms=132, **s) for s in (shape, larger))
        assert after.waves >= before.waves
        if m and n and k:  # an empty problem still pays for the last tile's stores
            assert after.total >= before.total * 0.999


def test_small_outputs_spread_over_the_chip() -> None:
    """A product with few output tiles is cut into small ones, a large square into the largest."""
    small = pick(MatmulSpec(), SM_90A, m=512, n=512, k=4096)
    large = pick(MatmulSpec(), SM_90A, m=8192, n=8192, k=8192)
    assert small.tile[0] * small.tile[1] < large.tile[0] * large.tile[1]
    assert large.tile[0] * large.tile[1] >= 128 * 256


SPECS = [
    MatmulSpec(),
    MatmulSpec(out_dtype=F32, store="direct", batched=True),
    MatmulSpec(functions=ElementwiseSpec("pointer", BF16, "gelu")),
]


@pytest.mark.parametrize("config", [MatmulConfig(), MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)], ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=[s.name for s in SPECS])
def test_explain_adds_up(spec: MatmulSpec, config: MatmulConfig) -> None:
    """Threads, registers, the shared-memory map and the barriers' counts are the kernel's, and add up."""
    kernel = tilekit.compile(spec, config=config)
    page = kernel.explain()
    assert page.startswith(f"{spec.name}: ")
    for role in kernel.text.roles:
        assert re.search(
            rf"^{role.name} +{role.warps.start}-{role.warps.stop - 1} +{32 * len(role.warps)} ", page, re.M
        )
    used, available = map(int, re.search(r"registers (\d+) of (\d+)", page).groups())  # type: ignore[union-attr]
    assert used <= available == SM_90A.registers
    shared, limit = map(int, re.search(r"shared memory (\d+) of (\d+) B", page).groups())  # type: ignore[union-attr]
    rows = [tuple(map(int, row)) for row in re.findall(r"^ +(\d+) +(\d+)  \w", page, re.M)]
    assert shared == sum(size for _, size in rows) <= limit
    assert [offset for offset, _ in rows] == [array.offset for array in kernel.text.shared]
    empty = next(array for array in kernel.text.shared if array.name == "inputs.empty")
    assert empty.arrivals == 4 * config.consumers * config.cluster_size
    assert re.search(rf"^inputs\.empty\[\d+\] +{empty.arrivals} ", page, re.M)
    assert re.search(rf"^inputs\.full\[\d+\] +1 +{config.stage_bytes(spec)} ", page, re.M)
