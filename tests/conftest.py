"""What all tests share: the option that rewrites golden files, samples of many cases, and that warnings are errors.

Warnings of plugins as they start are not: which plugins there are is up to the machine. No example of a property has a
deadline either: how long it takes is up to the machine, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.sampling import beyond_sample

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden PTX files instead of comparing")


TORCH_OWN = r"ignore:`torch\.jit\.\w+` is deprecated:FutureWarning"
"""What torch 2.14 says of its own modules as these are imported."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """What warns as a test's module is imported is not collected."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return (yield)


@pytest.hookimpl(tryfirst=True)  # before the markers choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What warns in a test fails it, unless the test's own marks say otherwise; of many cases a sample is run.

    Cases that need a GPU are none of `breadth`: all of them run with ``-m gpu``.
    """
    cases: dict[tuple[pytest.Item | pytest.Collector | None, str, int], list[pytest.Function]] = {}
    for item in items:
        item.add_marker(pytest.mark.filterwarnings(TORCH_OWN), append=False)
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)  # first, so that other marks prevail
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and isinstance(item, pytest.Function):
            cases.setdefault((item.parent, item.originalname, sampled.kwargs["one_in"]), []).append(item)
    for (_, _, one_in), all_of_them in cases.items():
        for item in beyond_sample(all_of_them, one_in):
            if item.get_closest_marker("gpu") is None:
                item.add_marker(pytest.mark.breadth)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))
