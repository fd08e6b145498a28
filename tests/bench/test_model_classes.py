"""How the picker's model is judged class by class."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from benchmarks import model


@pytest.fixture(scope="module")
def verdicts() -> list[model.Judged]:
    """Of some cases of the recorded sweeps, in every layout."""
    cases = json.loads(gzip.decompress(model.ALL_TIMES[-1].read_bytes()))[:40]
    return [verdict for case in cases if (verdict := model.judged(case)) is not None]


def test_every_file_of_matmuls_is_judged() -> None:
    """And none of convolutions, whose cases have other names."""
    assert len(model.ALL_TIMES) >= 6
    assert model.TIMES in model.ALL_TIMES
    assert not any("conv2d" in path.name for path in model.ALL_TIMES)


def test_a_line_for_each_class(verdicts: list[model.Judged]) -> None:
    """Each case is in one; the quickest of the first six is no slower than the first, and no quicker than the best."""
    lines = model.classes(verdicts).splitlines()
    counts = {line[:28].strip(): int(line[28:34]) for line in lines[1:-1]}
    assert counts.pop("all") == counts.pop(f"all, quickest of first {model.FIRST}") == len(verdicts)
    assert sum(counts.values()) == len(verdicts)
    assert set(counts) == {verdict.class_name for verdict in verdicts}
    assert all(1 <= verdict.of_first <= verdict.loss for verdict in verdicts)


def test_noise_makes_even_a_perfect_choice_lose() -> None:
    """Of a hundred configs that take as long, the quickest as measured is the luckiest; of one there is no luck."""
    assert model.noise(np.array([5.0, 100.0])).tolist() == [0.005, 0.03]
    lucky = model._lucky(np.full(100, 100.0))
    assert 1.04 < lucky.mean() < 1.12
    assert (model._lucky(np.full(1, 100.0)) == 1).all()
