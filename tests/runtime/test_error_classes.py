"""The error classes: codes, messages, pickling."""

from __future__ import annotations

import pickle

import pytest

from tilekit import errors


def test_message_ends_with_the_stable_code() -> None:
    """Every class has its own default code, and the text shows it."""
    error = errors.AssemblerNotFound("no ptxas")
    assert str(error) == "no ptxas [TK-ASM-002]"
    assert errors.TilekitError("x", code="TK-TRACE-004").code == "TK-TRACE-004"


def test_argument_error_names_argument_given_legal_and_nearest() -> None:
    """An argument error is a ValueError that carries all four facts."""
    error = errors.ArgumentError.of("stages", 9, legal="2..7", nearest=7)
    assert isinstance(error, ValueError)
    for fact in ("stages", "9", "2..7", "nearest legal: 7"):
        assert fact in str(error)


def test_config_error_lists_every_problem() -> None:
    """A configuration error shows all problems at once, not only the first."""
    error = errors.ConfigError(["too much shared memory", "odd cluster"], what="matmul")
    assert error.problems == ("too much shared memory", "odd cluster")
    assert "2 problems" in str(error)
    assert "odd cluster" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError(["a", "b"], what="w"),
        errors.AssemblerError("m", log="l", code="TK-ASM-003"),
        errors.HipError("m", call="hipX", result="hipErrorY"),
        errors.KernelFault("m", call="cuX", result="CUDA_ERROR_Y", launches=["k one", "k two"]),
        errors.EmulationTooLong("m", seconds=3.0, limit=1.0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: errors.TilekitError) -> None:
    """An error raised in a worker process arrives whole, attributes included."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_default_codes_are_unique() -> None:
    """No two classes share a default code."""
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TilekitError)]
    assert len({c.code for c in classes}) == len(classes) == 10


def test_an_error_has_the_code_it_is_given() -> None:
    """Every class passes a code on, and has its own where none is given."""
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TilekitError)]
    for kind in classes:
        assert kind("m", code="TK-GEN-999").code == "TK-GEN-999", kind
        assert kind("m").code == kind.code
        assert str(kind("m", code="TK-GEN-999")).endswith("[TK-GEN-999]")
