"""A product of matrices in the words of components: what their kernel parameters follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tilekit.kernels.problem import MatmulCall
from tilekit.tiles.call import Call, Scratch


@dataclass(frozen=True)
class Addresses:
    """Device addresses of a call's arrays; 0 where there is none."""

    a: int
    b: int
    out: int
    bias: int = 0
    scale: int = 0
    scale_a: int = 0
    scale_b: int = 0
    residual: int = 0
    groups: int = 0
    more: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, addresses: Mapping[str, int]) -> Addresses:
        """Take those of a Python epilogue's arrays apart from the others."""
        known = {name: address for name, address in addresses.items() if name in _KNOWN}
        return cls(**known, more={name: address for name, address in addresses.items() if name not in _KNOWN})


_KNOWN = {one.name for one in fields(Addresses)}


def launch_call(
    call: MatmulCall,
    addresses: Addresses,
    *,
    resident_clusters: int,
    scratch: Scratch,
    cluster_size: int,
    swapped: bool = False,
) -> Call:
    """Say what components know of a call.

    Parameters
    ----------
    call, addresses
        What the kernel is launched on.
    resident_clusters
        How many clusters the device runs at once.
    scratch
        Memory that lives as long as the launch.
    cluster_size
        CTAs of a cluster.
    swapped
        Whether the kernel multiplies the transposes in the other order.
    """
    problem, a, b = call.problem, addresses.a, addresses.b
    if swapped:
        problem, a, b = problem.transposed, b, a
    matrices = {"a": problem.a, "b": problem.b, "d": call.out, **call.matrices}
    if call.residual is not None:
        matrices["c"] = call.residual
    matrices.update(call.matrices)
    return Call(
        m=problem.m,
        n=problem.n,
        k=problem.k,
        batches=problem.batches,
        matrices=matrices,
        addresses={
            "a": a,
            "b": b,
            "c": addresses.residual,
            "d": addresses.out,
            "bias": addresses.bias,
            "scale": addresses.scale,
            "scale_a": addresses.scale_a,
            "scale_b": addresses.scale_b,
            "groups": addresses.groups,
            **addresses.more,
        },
        numbers={
            **call.numbers,
            "scale": call.scale,
            "beta": call.beta,
            "scale_a_batch_pitch": call.scale_pitches[0],
            "scale_b_batch_pitch": call.scale_pitches[1],
            "bias_batch_pitch": call.bias_pitch,
            "groups": call.groups,
            "group_rows": call.group_rows,
            **call.numbers,
        },
        resident=resident_clusters,
        scratch=scratch,
        cluster_size=cluster_size,
    )
