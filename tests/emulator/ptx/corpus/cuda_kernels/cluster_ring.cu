// targets: sm_90a sm_100a
// st.async to the next CTA of a cluster, which waits on its mbarrier for the bytes.
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cstdint>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_ring(const int* x, int* out) {
    __shared__ alignas(16) int inbox[128];
    __shared__ uint64_t bar;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    if (t == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, 512);
    }
    cluster.sync();
    unsigned next = cluster.block_rank() ^ 1;
    int* there = cluster.map_shared_rank(inbox, next);
    uint64_t* bar_there = cluster.map_shared_rank(&bar, next);
    ptx::st_async(there + (127 - t), x[i] * 3, bar_there);
    while (!ptx::mbarrier_try_wait_parity(&bar, 0));
    out[i] = inbox[t];
    cluster.sync();
}
