// targets: sm_80 sm_90a
// Atomics of many kinds, on global and shared memory, and loops over compare-and-swap.
#include <cuda_fp16.h>
extern "C" __global__ void atomics(const int* x, unsigned* u, int* s, unsigned long long* w, float* f, double* d, __half2* h) {
    __shared__ unsigned shared[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    if (threadIdx.x < 4) shared[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&shared[v & 3], 1u);
    atomicOr(&shared[0], 0u);
    atomicInc(u, 99);
    atomicDec(u + 1, 49);
    atomicAnd(u + 2, ~(1u << (v & 31)));
    atomicXor(u + 3, (unsigned)v);
    atomicMax(s, v), atomicMin(s + 1, v), atomicSub(s + 2, v);
    atomicAdd(w, (unsigned long long)v << 20), atomicMax(w + 1, (unsigned long long)v << 33);
    atomicAdd(f, (float)v), atomicAdd(d, (double)v);
    atomicAdd(h, __halves2half2(__int2half_rn(v & 3), __float2half(1.f)));
    // The maximum of floats, by compare-and-swap.
    int old = __float_as_int(((volatile float*)f)[1]), seen;
    do {
        seen = old;
        if (__int_as_float(seen) >= v * 0.5f) break;
        old = atomicCAS((int*)f + 1, seen, __float_as_int(v * 0.5f));
    } while (old != seen);
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(u + 4 + threadIdx.x, shared[threadIdx.x]);
}
