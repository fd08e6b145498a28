"""What an attention kernel computes."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.annotations import call_checked
from tilekit.dtypes import BF16, DType

HEAD_DIMS = (64, 96, 128, 192, 256)
"""Elements of a head that kernels have room for: fewer are filled up with zeros on the way to shared memory."""


@call_checked
@dataclass(frozen=True)
class AttentionSpec:
    """One attention kernel.

    Attributes
    ----------
    dtype
        Of queries, keys, values and output.
    head_dim, value_dim
        Elements of a head of queries and keys, and of values, that there is room for.
    right, left
        Whether keys are bounded towards later and earlier ones.
    softcap
        Whether scores are.
    lse
        Whether the logarithms of the rows' sums are stored.
    group
        Heads that share keys and are rows of one tile, whose keys several CTAs share: for few queries; or 0.
    lengths
        Whether each batch entry has its own number of keys in use.
    page
        Keys of a block of the cache, where a table says which blocks an entry's keys are in; or 0.
    packed
        Whether sequences of their own lengths lie behind each other, in one batch entry.
    repeated
        Names of arrays with their axes, ``"batch"`` or ``"head"``, all of whose entries are the first.
    """

    dtype: DType = BF16
    head_dim: int = 128
    value_dim: int = 128
    right: bool = False
    left: bool = False
    softcap: bool = False
    lse: bool = False
    group: int = 0
    lengths: bool = False
    page: int = 0
    packed: bool = False

    @property
    def own_keys(self) -> bool:
        """Whether each batch entry, or each sequence, has its own number of keys."""
        return self.lengths or self.packed

    repeated: tuple[tuple[str, str], ...] = ()

    def repeated_in(self, array: str) -> dict[str, bool]:
        """What loaders of an array are told of its axes, all of whose entries are the first."""
        return {f"one_{axis}": True for name, axis in self.repeated if name == array}

    @property
    def name(self) -> str:
        """The entry's symbol."""
        sizes = f"{self.head_dim}" if self.head_dim == self.value_dim else f"{self.head_dim}x{self.value_dim}"
        words = ["right" if self.right else "", "left" if self.left else "", "softcap" if self.softcap else ""]
        words += ["lse" if self.lse else "", f"group{self.group}" if self.group else ""]
        words += ["lengths" if self.lengths else "", f"page{self.page}" if self.page else ""]
        words += ["packed" if self.packed else ""]
        words += [f"{array}_one_{axis}" for array, axis in self.repeated]
        return "_".join(["attention", self.dtype.name, f"d{sizes}", *(word for word in words if word)])


def room_for(elements: int) -> int:
    """The smallest head that has room for so many elements."""
    return next(size for size in HEAD_DIMS if size >= elements)
