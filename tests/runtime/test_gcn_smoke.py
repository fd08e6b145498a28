"""The smoke kernels for AMD chips give the same answer as text and as code object; HIP's runtime: ``test_hip.py``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.gcn_smoke import CHIPS, SMOKE, Smoke
from tilekit.emulator import Device
from tilekit.emulator.gcn.lint import lint
from tilekit.runtime.assembler import assemble


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("smoke", SMOKE, ids=str)
def test_text_and_code_object(smoke: Smoke, chip: str) -> None:
    """Both run clean and are exact, in several orders, and lint has nothing to say."""
    pytest.importorskip("ziglang")
    text = smoke.text(chip)
    assert lint(text) == []
    for form in (text, assemble(text, chip, kernel_name=smoke.name).image):
        for seed in range(3):
            inputs = smoke.draw(np.random.default_rng(seed))
            device = Device(chip, seed=seed)
            report = device.load(form)[smoke.name].launch(inputs.grid, smoke.threads, inputs.arguments)
            assert report.clean, str(report)
            np.testing.assert_array_equal(inputs.out, inputs.expected)
