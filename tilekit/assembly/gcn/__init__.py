"""The dialect for AMD chips: kernels as AMDGCN assembly, with registers, waits and wait states worked out here."""
