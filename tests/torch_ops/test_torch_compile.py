"""torch.compile, torch.export and streams: the operators in the hands of torch's own machinery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

import tilekit.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # its import


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Compile everything anew in each test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def block(x: Any, weight: Any, bias: Any) -> Any:
    """A piece of a model: a fused layer between operations of torch."""
    return tilekit.torch.linear(x + 1, weight, bias, "relu", out_dtype="f32") * 2


def test_one_graph_for_all_sizes(integers: Any) -> None:
    """The whole function is one graph, compiled once for any M, and computes what eager mode computes."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counter)
    weight, bias = integers(24, 32), integers(24, dtype=torch.float32)
    for lead in (16, 2, 33):
        x = integers(lead, 3, 32)
        assert torch.equal(compiled(x, weight, bias), block(x, weight, bias))
    assert counter.frame_count == 1


def test_every_dimension_may_change(integers: Any) -> None:
    """M, N and K are all symbols: multiples of 16 bytes are a guard, not a constant."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(tilekit.torch.matmul, fullgraph=True, dynamic=True, backend=counter)
    for m, n, k in ((16, 24, 32), (8, 48, 64), (33, 8, 40)):
        a, b = integers(m, k), integers(k, n)
        assert torch.equal(compiled(a, b).double(), a.double() @ b.double())
    assert counter.frame_count == 1


def test_out_in_a_graph(integers: Any) -> None:
    """A compiled function that writes into a buffer of its caller's leaves there what eager mode leaves."""

    def write(a: Any, b: Any, out: Any, scale: Any) -> Any:
        tilekit.torch.matmul(a, b, out=out, scale=scale)
        return out + 1

    a, b = integers(16, 32), integers(32, 24)
    out, scale = torch.zeros(16, 24, dtype=torch.float32, device=a.device), torch.tensor(2.0, device=a.device)
    result = torch.compile(write, fullgraph=True, backend="aot_eager")(a, b, out, scale)
    assert torch.equal(out.double(), 2 * (a.double() @ b.double()))
    assert torch.equal(result, out + 1)


def test_training_step_in_a_graph(integers: Any) -> None:
    """Forward and backward are compiled, and give eager mode's gradients."""

    def step(x: Any, weight: Any) -> Any:
        y = torch.relu(tilekit.torch.linear(x, weight))
        return torch.autograd.grad(y.sum(), (x, weight))

    def forward(x: Any, weight: Any) -> Any:
        return torch.relu(tilekit.torch.linear(x, weight))

    x, weight = integers(16, 32).requires_grad_(), integers(20, 32).requires_grad_()
    compiled = torch.compile(forward, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, weight).sum(), (x, weight))
    assert all(torch.equal(one, other) for one, other in zip(found, step(x, weight), strict=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"activation": "tanh"}, "choose one of relu, gelu, silu"),
        ({"bias": torch.zeros(7)}, "one contiguous value for each of the 24 columns"),
    ],
)
def test_errors_come_while_compiling(integers: Any, device: str, arguments: dict[str, Any], words: str) -> None:
    """What a kernel would refuse stops the compilation, in tilekit's words."""
    arguments = {name: given.to(device) if hasattr(given, "to") else given for name, given in arguments.items()}
    compiled = torch.compile(lambda a, b: tilekit.torch.matmul(a, b, **arguments), fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match=words):
        compiled(integers(16, 32), integers(32, 24))


def test_export(integers: Any) -> None:
    """An exported program holds the operator and keeps M open."""

    class Layer(torch.nn.Module):
        def forward(self, x: Any, weight: Any) -> Any:
            return tilekit.torch.linear(x, weight, activation="gelu")

    x, weight = integers(2, 16, 32), integers(24, 32)
    program = torch.export.export(
        Layer(), (x, weight), dynamic_shapes={"x": {1: torch.export.Dim.DYNAMIC}, "weight": None}
    )
    assert torch.ops.tilekit.matmul.default in [node.target for node in program.graph.nodes]
    shorter = x[:, :5].contiguous()
    assert torch.equal(program.module()(shorter, weight), Layer()(shorter, weight))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # Inductor's own
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_inductor(integers: Any, mode: str) -> None:
    """Inductor's code, with CUDA graphs too, gives eager mode's result; operands keep the strides they were given."""

    def padded(x: Any, weight: Any, bias: Any) -> Any:
        rows = torch.nn.functional.pad(torch.relu(x), (0, 1))[:, :-1]  # 31 columns, but rows of 64 bytes
        return tilekit.torch.linear(rows, weight[:, :31], bias, "relu", out_dtype="f32") * 2

    compiled = torch.compile(padded, fullgraph=True, mode=mode)
    weight, bias = integers(24, 32), integers(24, dtype=torch.float32)
    with torch.no_grad():
        for _ in range(4):
            x = integers(16, 31)
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(x, weight, bias), padded(x, weight, bias))


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_the_current_stream_is_used(integers: Any) -> None:
    """Inside a stream's context the operator waits for that stream's work, and a captured graph replays it."""
    a, b = integers(256, 256), integers(256, 256)
    expected = 2 * (a.double() @ b.double())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        later = a + a
        d = tilekit.torch.matmul(later, b, out_dtype="f32")
    stream.synchronize()
    assert torch.equal(d.double(), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = tilekit.torch.matmul(a, b, out_dtype="f32")
    a.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured.double(), expected)
