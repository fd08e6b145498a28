"""What the trees of the picker's correction learn from."""

from __future__ import annotations

import pytest

from benchmarks import learn


@pytest.mark.parametrize(
    ("layer", "product"),
    [
        ("32x28x28x512 256x1x1 bf16→bf16", "25088x256x512 bf16→bf16 k/k"),
        ("32x28x28x40 240x1x1 bf16→bf16", "25088x240x40 bf16→bf16 k/k"),
        ("16x64x64x16 64x1x1 bf16→bf16", None),  # of narrow slices of K, which a loader of its own brings
        ("32x14x14x256 256x3x3 p1 bf16→bf16", None),
        ("32x28x28x256 256x1x1 s2 bf16→bf16", None),
        ("32x28x28x128 512x1x1 bf16→bf16 +bias +relu", None),
    ],
)
def test_a_layer_is_learned_from_where_it_is_a_product(layer: str, product: str | None) -> None:
    """Layers whose kernels are those of a product count as one; nothing else of a case changes."""
    found = learn.as_product({"case": layer, "turn": 0.008, "rows": []})
    assert found == (None if product is None else {"case": product, "turn": 0.008, "rows": []})


def test_kept_layers_are_among_the_cases() -> None:
    """The sweeps of convolutions hold products."""
    shapes = {case.shape for case in learn.cases()}
    assert {"25088x256x512", "165x12288x4096"} <= shapes
