"""Sizes are said once: what a config's budget is made of is what the components allocate."""

from __future__ import annotations

import random
from typing import Any

import pytest
from matmul_specs import CHIPS, all_specs, legal_configs

from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import SharedDeclaration, SharedMemory, mbarriers, size_of
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.kernels.gemv import kernel as gemv
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.sums import WarpSums
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import default_config
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, Target

ON_EACH = pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)


@ON_EACH
def test_budgets_are_exact(chip: Target) -> None:
    """Of specs and configs at random: the map is the declarations', it fits, and another stage would not."""
    rng = random.Random(20261122)
    for spec in rng.sample(all_specs(chip), 12):
        for config in rng.sample(legal_configs(spec, chip), 2):
            text, memory = trace(spec, config, chip), config.memory(spec)
            assert memory.size(text.stages) == size_of(memory.declared(text.stages)) == text.shared_bytes
            assert text.shared_bytes <= chip.shared_bytes
            if config.stages is None and text.stages < config.MAX_STAGES:
                assert memory.size(text.stages + 1) > chip.shared_bytes, f"{spec.name}: {config}"


def test_what_aligns_an_object_counts() -> None:
    """Tails of lines that threads shift end anywhere; the subtiles behind them begin at a multiple of 1024 bytes."""
    spec = MatmulSpec(a_load=2, b_load=2)
    config = default_config(spec, SM_90A).changed(tile=(64, 32), consumers=1, stages=3)
    text = trace(spec, config, SM_90A)
    ends = {array.name: array.offset + array.size for array in text.shared}
    assert ends["inputs.b_tails"] % 1024
    assert config.memory(spec).size(3) == text.shared_bytes


@ON_EACH
def test_a_component_that_allocates_more_than_it_declared(chip: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is refused when it is traced, with the object and both sizes."""
    made = StagedEpilogue.__init__

    def greedy(self: StagedEpilogue, w: Any, *arguments: Any, **options: Any) -> None:
        made(self, w, *arguments, **options)
        w.shared.allocate("output.spare", size=48)

    monkeypatch.setattr(StagedEpilogue, "__init__", greedy)
    with pytest.raises(TraceError, match="TK-SHARED-002") as caught:
        trace(MatmulSpec(), default_config(MatmulSpec(), chip), chip)
    assert "matmul_bf16_bf16_bf16_kk: shared array 'output.spare' is 1 x 48 B at " in str(caught.value)
    assert "the budget has nothing" in str(caught.value)


def test_a_component_that_declares_more_than_it_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every family: a prediction that is too large is as wrong."""
    (sums,) = WarpSums.declared(units=8, columns=16, tokens=1)
    monkeypatch.setattr(GemvConfig, "declared", lambda self, spec: (sums._replace(elements=3),))
    with pytest.raises(TraceError, match="TK-SHARED-002") as caught:
        gemv.trace(GemvSpec(), GemvConfig(), SM_90A)
    assert f"'sums' is 2 x {sums.size} B at 0, and the budget has 3 x {sums.size} B at 0" in str(caught.value)


@ON_EACH
def test_a_declaration_that_a_constructor_follows(chip: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A component whose declaration grows allocates more and leaves fewer stages; nothing else says its size."""
    spec = MatmulSpec()
    config = default_config(spec, chip)
    before = trace(spec, config, chip)
    declared = StagedEpilogue.declared

    def larger(*arguments: Any, **options: Any) -> tuple[SharedDeclaration, ...]:
        return (*declared(*arguments, **options), SharedDeclaration("output.more", 1024, 20, 1024))

    def place_all(self: StagedEpilogue, w: Any, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(StagedEpilogue, "declared", staticmethod(declared))
        made(self, w, *arguments, **options)
        monkeypatch.setattr(StagedEpilogue, "declared", staticmethod(larger))
        w.shared.allocate("output.more", size=1024, count=20, alignment=1024)

    made = StagedEpilogue.__init__
    monkeypatch.setattr(StagedEpilogue, "__init__", place_all)
    monkeypatch.setattr(StagedEpilogue, "declared", staticmethod(larger))
    after = trace(spec, config, chip)
    assert after.stages < before.stages
    assert after.shared_bytes <= chip.shared_bytes


def test_declarations_are_placed_as_they_are_counted() -> None:
    """Sizes of random declarations are those of the memory that they are placed in."""
    rng = random.Random(7)
    for _ in range(50):
        found = [
            SharedDeclaration(f"{i}", rng.randint(1, 3000), rng.randint(1, 5), 1 << rng.randint(0, 10))
            for i in range(6)
        ]
        found += mbarriers("ring", ("full", "empty"), rng.randint(1, 9))
        shared = SharedMemory()
        for declared in found:
            shared.place(declared)
        assert shared.size == size_of(found)
        shared.check(found, "kernel")
        twice = [declared.times(2) for declared in found]
        assert size_of(twice) == size_of(found, times=2)
