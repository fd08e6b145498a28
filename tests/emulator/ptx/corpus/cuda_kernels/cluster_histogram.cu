// targets: sm_90a sm_100a
// Distributed shared memory: each CTA of a cluster owns a part of the bins.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(const int* x, int* bins, int n) {
    __shared__ int mine[64];
    auto cluster = cg::this_cluster();
    if (threadIdx.x < 64) mine[threadIdx.x] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(cluster.map_shared_rank(mine, x[i] / 64) + x[i] % 64, 1);
    cluster.sync();
    if (threadIdx.x < 64) atomicAdd(bins + cluster.block_rank() * 64 + threadIdx.x, mine[threadIdx.x]);
}
