"""What accumulators do between k-blocks, while the stage is held."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.assembly.errors import TraceError
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3
from tilekit.kernels.matmul import compiled
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a import components
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A
from tilekit.tile_op.register_accumulators import PromotedAccumulators, RegisterAccumulators
from tilekit.tiles.stage import HeldStage, Promote

SPEC = MatmulSpec(E4M3, E4M3, BF16, accumulation="promoted")
CONFIG = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, in_flight=0, stages=2)


class Holding(PromotedAccumulators):
    """Holds the stage until the sums are added."""

    def _add(self, w: Writer, stage: HeldStage) -> None:
        super()._add(w, HeldStage(stage.index, None))


@pytest.mark.parametrize("accumulators", [PromotedAccumulators, Holding])
def test_a_stage_goes_back_once(accumulators: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given back before the sums are added or behind them, the product is exact and nothing is found."""
    monkeypatch.setattr(components, "PromotedAccumulators", accumulators)
    kernel = compiled.MatmulKernel(SPEC, CONFIG, SM_90A)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((130, 640), (72, 640)))
    launch = kernel.bind(a, b.T, seed=5)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    assert (launch() == expected).all()
    assert launch.report.clean
    behind = kernel.ptx[kernel.ptx.index("wgmma.wait_group") :]
    early = behind.index("ArriveConsumer.consumer_release") < behind.index("add.f32 ")
    assert early == (accumulators is PromotedAccumulators)


def test_reads_in_flight_and_promotion_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring whose consumer keeps reads running says who wants them done, and what to change."""

    class Eager(RegisterAccumulators):
        @property
        def promote(self) -> Promote:
            return lambda w, stage: None

    monkeypatch.setattr(components, "RegisterAccumulators", Eager)
    with pytest.raises(TraceError, match="TK-TRACE-010") as caught:
        trace(MatmulSpec(), tilekit.MatmulConfig(), SM_90A)
    assert "in_flight=0" in str(caught.value)
