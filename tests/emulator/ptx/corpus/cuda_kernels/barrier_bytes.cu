// targets: sm_90a sm_100a
// The bytes of barriers that have done their work are taken by a tile that a bulk copy brings; then barriers again.
#include "tma.h"
extern "C" __global__ void barrier_bytes(const float* x, float* out, int turns) {
    __shared__ alignas(128) char bytes[1024];
    __shared__ alignas(128) float tile[256];
    __shared__ uint64_t last;
    uint64_t* bars = (uint64_t*)bytes;
    int t = threadIdx.x;
    const float* from = x + blockIdx.x * turns * 512;
    float* to = out + blockIdx.x * turns * 512;
    if (t == 0) { ptx::mbarrier_init(&last, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
    __syncthreads();
    for (int i = 0; i < turns; i++, from += 512, to += 512) {
        if (t < 2) { ptx::mbarrier_init(bars + t, 1); }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        __syncthreads();
        if (t < 2) { expect(bars + t, 512); ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, tile + t * 128, from + t * 128, 512, bars + t); }
        wait_for(bars, 0); wait_for(bars + 1, 0);
        for (int j = t; j < 256; j += blockDim.x) to[j] = tile[j] + 1;
        __syncthreads();
        if (t < 2) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(bars + t)) : "memory");
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (t == 0) { expect(&last, 1024); ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, bytes, from + 256, 1024, &last); }
        wait_for(&last, i & 1);
        for (int j = t; j < 256; j += blockDim.x) to[256 + j] = ((float*)bytes)[j] - 1;
        __syncthreads();
    }
}
