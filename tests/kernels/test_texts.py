"""The comparison of kernel texts lets names differ, and nothing else."""

from __future__ import annotations

from tests.kernels.texts import unnamed

TEXT = """\
.visible .entry kernel(
    .param .u32 depth_param
)
{
    .reg .b32 depth, add;
    .reg .f32 acc<2>;
    ld.param.u32 depth, [depth_param];
    add.u32 add, depth, 1;
k_loop:
    mov.f32 acc1, 0f00000000;
    bra k_loop;
}
"""


def test_names_do_not_count() -> None:
    """Other names of registers, ranges, labels and parameters, declared in another order, are the same text."""
    other = TEXT.replace(".reg .b32 depth, add;", ".reg .b32 sum, k;").replace("add, depth", "sum, depth")
    other = other.replace("depth", "k").replace("acc", "d").replace("k_loop", "top")
    assert other != TEXT
    assert unnamed(other) == unnamed(TEXT)


def test_everything_else_counts() -> None:
    """Another instruction, constant, register or target of a branch is another text."""
    for old, new in (("add.u32", "sub.u32"), (", 1;", ", 2;"), ("add, depth", "depth, depth"), ("acc1,", "add,")):
        changed = TEXT.replace(old, new)
        assert changed != TEXT
        assert unnamed(changed) != unnamed(TEXT)
