// targets: sm_80 sm_90a
// Cooperative groups: a sum and a maximum of a block, by tiles of 32 and of 8.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void block_reduce(const float* x, float* out, int n) {
    __shared__ float parts[32];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto small = cg::tiled_partition<8>(block);
    float sum = 0;
    for (int i = block.thread_rank(); i < n; i += block.size()) sum += x[blockIdx.x * n + i];
    float most = cg::reduce(small, sum, cg::greater<float>());
    sum = cg::reduce(warp, sum, cg::plus<float>());
    if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = sum;
    block.sync();
    if (warp.meta_group_rank() == 0) {
        float part = warp.thread_rank() < warp.meta_group_size() ? parts[warp.thread_rank()] : 0.f;
        part = cg::reduce(warp, part, cg::plus<float>());
        if (warp.thread_rank() == 0) out[blockIdx.x] = part;
    }
    if (small.thread_rank() == 0) atomicMax((int*)out + gridDim.x + blockIdx.x, __float_as_int(most));
}
