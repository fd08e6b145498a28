// targets: sm_90a sm_100a
// A cluster of two: CTA 0 makes the map for both; the other acquires it behind the cluster's barrier.
#include "tma.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2) map_in_cluster(const __grid_constant__ CUtensorMap model, CUtensorMap* maps, const float* x, float* out) {
    __shared__ alignas(128) CUtensorMap map;
    __shared__ alignas(128) float tile[16][32];
    __shared__ uint64_t bar;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, rank = cluster.block_rank();
    CUtensorMap* ours = maps + blockIdx.x / 2;
    if (t == 0) { ptx::mbarrier_init(&bar, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
    if (rank == 0 && t < 32) {
        ((int*)&map)[t] = ((const int*)&model)[t];
        __syncwarp();
        if (t == 0) {
            ptx::tensormap_replace_global_address(ptx::space_shared, &map, (uint64_t)(x + blockIdx.x * 512));
            ptx::tensormap_replace_global_dim(ptx::space_shared, &map, ptx::n32_t<1>{}, 32);
        }
        __syncwarp();
        ptx::tensormap_cp_fenceproxy(ptx::sem_release, ptx::scope_cluster, ours, &map, ptx::n32_t<128>{});
    }
    cluster.sync();
    if (t == 0) {
        ptx::fence_proxy_tensormap_generic(ptx::sem_acquire, ptx::scope_cluster, ours, ptx::n32_t<128>{});
        expect(&bar, 2048);
        load2d(tile, ours, 0, rank * 16, &bar);
    }
    wait_for(&bar, 0);
    for (int i = t; i < 512; i += blockDim.x) out[blockIdx.x * 512 + i] = ((float*)tile)[i] + rank;
    cluster.sync();
}
