"""Launches of AMD kernels on the emulator, behind the interface that HIP's have."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.gcn_kernels import STORE, module
from tests.runtime.gcn_smoke import CHIPS, SMOKE, Smoke
from tilekit.emulator import Device, MissingWait
from tilekit.errors import ArgumentError, ConfigError
from tilekit.runtime.assembler import assemble
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.parameters import U32, Parameter, Pointer
from tilekit.runtime.prepared import LaunchConfig

ONE = LaunchConfig((1, 1, 1), (64, 1, 1))
LISTED = """\
    .args:
      - {.name: out, .offset: 0, .size: 8, .value_kind: global_buffer}
      - {.name: value, .offset: 8, .size: 4, .value_kind: by_value}
"""


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("smoke", SMOKE, ids=str)
def test_host_arrays_need_no_gpu(smoke: Smoke, chip: str) -> None:
    """The same parameters and shape as for HIP compute the same, from text and from a code object."""
    pytest.importorskip("ziglang")
    text = smoke.text(chip)
    for form in (text, assemble(text, chip, kernel_name=smoke.name).image):
        inputs = smoke.draw(np.random.default_rng(11))
        device = Device(chip)
        buffers = [device.buffer(value) for value in inputs.arguments if isinstance(value, np.ndarray)]
        parameters: list[Parameter] = [Pointer(buffer.address) for buffer in buffers]
        parameters += [U32(int(value)) for value in inputs.arguments if not isinstance(value, np.ndarray)]
        config = LaunchConfig(inputs.grid, (smoke.threads, 1, 1))
        launch = EmulatedModule(device, form).kernel(smoke.name).prepare(config, parameters)
        launch()
        assert launch.report is not None
        assert launch.report.clean
        np.testing.assert_array_equal(buffers[-1].read(), inputs.expected)


@pytest.mark.parametrize("metadata", [True, False])
def test_parameters_are_patched_between_launches(metadata: bool) -> None:
    """With a list of arguments and without, as on a GPU."""
    device = Device("gfx950")
    out = device.buffer(np.zeros(64, np.uint32))
    text = module(STORE, arguments=LISTED) if metadata else module(STORE, metadata=False)
    launch = EmulatedModule(device, text).kernel("small").prepare(ONE, [Pointer(0), U32(1)])
    launch.set_pointer(0, out.address)
    launch.set_u32(1, 7)
    launch()
    assert (out.read() == 7).all()


def test_what_does_not_fit_is_refused() -> None:
    """As HIP's launches do, before anything runs."""
    kernel = EmulatedModule(Device("gfx942"), module(STORE, chip="gfx942", arguments=LISTED)).kernel("small")
    with pytest.raises(ArgumentError, match=r"given 1; legal: 2, as small takes: out \(8 B\), value \(4 B\)") as caught:
        kernel.prepare(ONE, [Pointer(0)])
    assert caught.value.code == "TK-PAR-004"
    shape = LaunchConfig((2, 1, 1), (64, 1, 1), cluster=(2, 1, 1), pdl=True)
    with pytest.raises(ConfigError, match=r"(?s)gfx942 has no clusters.*no programmatic dependent launch") as refused:
        kernel.prepare(shape, [Pointer(0), U32(1)])
    assert refused.value.code == "TK-LAUNCH-003"


def test_findings() -> None:
    """What the emulator finds passes unchanged."""
    text = module(STORE.replace("  s_waitcnt lgkmcnt(0)\n", ""), arguments=LISTED)
    kernel = EmulatedModule(Device("gfx950"), text).kernel("small")
    with pytest.raises(MissingWait):
        kernel.prepare(ONE, [Pointer(0), U32(1)])()
