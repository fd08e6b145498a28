"""Attention with a component of yours: the family's kernel, in which a function puts another part in one's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import illegal
from tilekit.assembly.writer import Writer
from tilekit.drivers.attention import Attention
from tilekit.drivers.tensor_attention import TensorAttention
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.compiled import AttentionKernel
from tilekit.kernels.attention.config import LONG
from tilekit.kernels.attention.kernel import OwnAttention
from tilekit.kernels.attention.platforms import AnyAttentionConfig, chosen_config
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named

ChangeAttention: TypeAlias = Callable[[Writer, Any], Any]
"""Of the writer and a driver with all its components: the driver to trace."""


class ComposedAttention(AttentionKernel):
    """A kernel of attention with a component of yours; it is called, bound, checked and shown as any.

    Parameters
    ----------
    spec, config, target, own
        As for `AttentionKernel`.
    change
        The function that has made it, whose place it takes.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        config: AnyAttentionConfig,
        target: Target,
        own: OwnAttention,
        change: ChangeAttention,
    ) -> None:
        super().__init__(spec, config, target, own)
        self.__module__ = change.__module__
        self._place = getattr(change, "__qualname__", own.name)

    def __reduce__(self) -> str:
        """A pickle names the kernel by where it is found, as that of a function does; a copy is the kernel itself."""
        return self._place

    def __call__(self, q: Any, k: Any, v: Any, *, stream: Any = None, **keywords: Any) -> Any:
        """Launch once, where the arrays are: host memory means the emulator.

        Parameters
        ----------
        q, k, v, keywords
            As for `bind`.
        stream
            As for `tilekit.attention`.
        """
        return self.bind(q, k, v, **keywords)(stream)


@call_checked
def attention_kernel(
    spec: AttentionSpec, *, target: str, config: AnyAttentionConfig | None = None
) -> Callable[[ChangeAttention], ComposedAttention]:
    """Make a kernel of attention of the function that changes its components.

    Parameters
    ----------
    spec
        What it computes besides: types, head dims, bounds, soft cap, logarithms, groups.
    target
        ``"sm_90a"``, whose driver is `Attention`, or ``"sm_100a"``, whose driver is `TensorAttention`.
    config
        An `AttentionConfig` or a `BlackwellAttentionConfig`; by default the one for long queries.

    Raises
    ------
    ArgumentError
        For a spec or a target that attention is not built for.
    ConfigError
        Listing every rule that `config` violates.
    TraceError
        For a function that returns no driver, or one whose components do not fit.

    Examples
    --------
    ::

        @attention_kernel(tilekit.AttentionSpec(), target="sm_90a")
        def documents(w: Writer, made: Attention) -> Attention:
            return replace(made, range=ChangedScores(made.range, same_document))

        out = documents(q, k, v)
    """
    if not isinstance(spec, AttentionSpec):
        raise ArgumentError.of("spec", spec, legal="an AttentionSpec", code="TK-ATT-001")
    chip = target_named(target)
    chosen = chosen_config(spec, chip, LONG, config)

    def make(change: ChangeAttention) -> ComposedAttention:
        name = getattr(change, "__name__", "")

        def changed(w: Writer, made: Any) -> Any:
            found = change(w, made)
            if not isinstance(found, Attention | TensorAttention):
                raise TraceError(
                    f"{name} returned {found!r}; legal: a driver of attention, such as dataclasses.replace(made, ...)",
                    code="TK-PART-001",
                )
            return found

        if not name.isidentifier():
            raise illegal("attention_kernel", "change", change, "a function with a name")
        return ComposedAttention(spec, chosen, chip, OwnAttention(name, changed), change)

    return make
