// targets: sm_90a sm_100a
// Block 0 makes a map for each block and raises a flag; the others wait for it, acquire, and load.
#include "tma.h"
#include <cuda/atomic>
extern "C" __global__ void tensor_maps(const __grid_constant__ CUtensorMap model, CUtensorMap* maps, int* flag, const float* x, float* out) {
    __shared__ alignas(128) float tile[16][32];
    __shared__ uint64_t bar;
    int t = threadIdx.x;
    if (t == 0) { ptx::mbarrier_init(&bar, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
    __syncthreads();
    if (blockIdx.x == 0 && t == 0) {
        for (int b = 0; b < gridDim.x; b++) {
            maps[b] = model;
            ptx::tensormap_replace_global_address(ptx::space_global, maps + b, (uint64_t)(x + b * 512));
        }
        ptx::fence_proxy_tensormap_generic(ptx::sem_release, ptx::scope_gpu);
        cuda::atomic_ref<int, cuda::thread_scope_device>(*flag).store(1, cuda::memory_order_release);
    }
    if (t == 0) {
        while (!cuda::atomic_ref<int, cuda::thread_scope_device>(*flag).load(cuda::memory_order_acquire));
        CUtensorMap* mine = maps + blockIdx.x;
        ptx::fence_proxy_tensormap_generic(ptx::sem_acquire, ptx::scope_gpu, mine, ptx::n32_t<128>{});
        expect(&bar, 2048);
        load2d(tile, mine, 0, 0, &bar);
    }
    wait_for(&bar, 0);
    for (int i = t; i < 512; i += blockDim.x) out[blockIdx.x * 512 + i] = ((float*)tile)[i] - 1;
}
