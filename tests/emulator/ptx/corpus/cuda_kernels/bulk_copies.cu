// targets: sm_90a sm_100a
// One-dimensional bulk copies in, and a bulk reduction out, with a ring of mbarriers.
#include <cuda/ptx>
#include <cstdint>
namespace ptx = cuda::ptx;
extern "C" __global__ void bulk_copies(const float* x, float* sums, int tiles) {
    __shared__ alignas(128) float ring[2][256];
    __shared__ alignas(128) float part[256];
    __shared__ uint64_t full[2];
    int t = threadIdx.x;
    if (t < 2) ptx::mbarrier_init(&full[t], 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    __syncthreads();
    auto load = [&](int tile) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[tile & 1], 1024);
        ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, ring[tile & 1],
                           x + (blockIdx.x * tiles + tile) * 256, 1024, &full[tile & 1]);
    };
    if (t == 0) load(0);
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        if (t == 0 && tile + 1 < tiles) load(tile + 1);
        while (!ptx::mbarrier_try_wait_parity(&full[tile & 1], tile >> 1 & 1));
        sum += ring[tile & 1][t];
        __syncthreads();
    }
    part[t] = sum;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sums, part, 1024);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}
