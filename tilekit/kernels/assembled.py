"""A kernel's text and what becomes of it: machine code, resources, the kernel in the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from tilekit.runtime.assembler import Assembled, assemble, disassemble
from tilekit.runtime.launch import CudaKernel, CudaModule
from tilekit.runtime.resources import Resources
from tilekit.targets import Target


class AssembledKernel(ABC):
    """What every kernel object shows.

    Attributes
    ----------
    target
        The chip that it is for.
    """

    target: Target

    @property
    @abstractmethod
    def name(self) -> str:
        """The entry's symbol."""

    @property
    @abstractmethod
    def ptx(self) -> str:
        """The module's text, each line with its role and origin."""

    @property
    def assembly(self) -> str:
        """The module's text in the chip's instruction set."""
        return self.ptx

    @cached_property
    def assembled(self) -> Assembled:
        """The machine code, from the assembler or the disk cache."""
        return assemble(self.assembly, self.target.name, kernel_name=self.name)

    @property
    def resources(self) -> Resources:
        """Registers, shared memory and what else the chip's assembler or code object says."""
        return self.assembled.resources

    @cached_property
    def isa(self) -> str:
        """The machine code, disassembled (SASS, or AMDGCN)."""
        return disassemble(self.assembled.image)

    @cached_property
    def cuda(self) -> CudaKernel:
        """The kernel in the CUDA driver."""
        return CudaModule.from_ptx(self.ptx, self.target.name, kernel_name=self.name).kernel(self.name)
