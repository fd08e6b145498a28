// targets: sm_90a sm_100a
// cuda::barrier counting bytes of bulk copies into this block's and another's shared memory.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <utility>
using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2) bulk_barrier(const int* x, int* out) {
    __shared__ alignas(128) int mine[256], given[256];
    __shared__ Barrier loaded;
    __shared__ uint64_t received;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        init(&loaded, blockDim.x);
        ptx::mbarrier_init(&received, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    cluster.sync();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(mine, x + blockIdx.x * 256, cuda::aligned_size_t<16>(1024), loaded);
        token = cuda::device::barrier_arrive_tx(loaded, 1, 1024);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &received, 1024);
    } else {
        token = loaded.arrive();
    }
    loaded.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = mine[i] * 3 + (int)cluster.block_rank();
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned other = cluster.block_rank() ^ 1;
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared, cluster.map_shared_rank(given, other), mine, 1024,
                           cluster.map_shared_rank(&received, other));
    }
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &received, 0));
    for (int i = threadIdx.x; i < 256; i += blockDim.x) out[blockIdx.x * 256 + i] = given[i] - mine[i];
    cluster.sync();
}
