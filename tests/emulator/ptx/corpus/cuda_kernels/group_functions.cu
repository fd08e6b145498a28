// targets: sm_80 sm_90a
// Cooperative groups: coalesced and labelled groups, scans, aggregated atomics, asynchronous copies of a group.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
namespace cg = cooperative_groups;

__device__ int aggregated(int* counter) {  // one atomic for the lanes that are here together
    auto here = cg::coalesced_threads();
    int base = 0;
    if (here.thread_rank() == 0) base = atomicAdd(counter, here.size());
    return here.shfl(base, 0) + here.thread_rank();
}

extern "C" __global__ void group_functions(const int* x, int* kept, int* count, int* out, int n) {
    __shared__ alignas(16) int staged[256];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    cg::memcpy_async(block, staged, x + blockIdx.x * 256, cuda::aligned_size_t<16>(1024));
    cg::wait(block);
    for (int i = block.thread_rank(); i < 256; i += block.size()) {
        int v = staged[i];
        if (v % 3 == 0) kept[aggregated(count)] = v;
    }
    int v = staged[block.thread_rank()], *row = out + (blockIdx.x * 128 + block.thread_rank()) * 6;
    auto label = cg::labeled_partition(warp, v & 3);
    row[0] = cg::reduce(label, v, cg::plus<int>());
    row[1] = cg::inclusive_scan(warp, v, cg::plus<int>());
    row[2] = cg::exclusive_scan(label, v, cg::bit_xor<int>());
    auto half = cg::binary_partition(cg::tiled_partition<16>(block), v > 500);
    row[3] = half.size() * 100 + half.thread_rank();
    row[4] = 0;
    if (warp.thread_rank() % 5 < 2) {
        auto some = cg::coalesced_threads();
        row[4] = cg::reduce(some, v, cg::less<int>()) + some.match_any(v & 1) % 1000;
    }
    auto quad = cg::tiled_partition<4>(warp);
    row[5] = quad.shfl_xor(v, 3) + quad.any(v > 900) * 10000 + quad.meta_group_rank() * 20000;
}
