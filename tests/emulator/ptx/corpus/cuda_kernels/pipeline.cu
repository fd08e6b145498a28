// targets: sm_80 sm_90a sm_100a
// cuda::pipeline: a block's stages of asynchronous copies, by producer and consumer warps and by all threads.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
extern "C" __global__ void pipeline(const float* x, const float* w, float* out, int tiles) {
    constexpr int STAGES = 3, TILE = 128;
    __shared__ alignas(16) float ring[STAGES][TILE];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state, shared;
    __shared__ alignas(16) float weights[2][TILE];
    __shared__ cuda::barrier<cuda::thread_scope_block> swapped;
    auto block = cg::this_thread_block();
    const float* mine = x + blockIdx.x * tiles * TILE;
    if (block.thread_rank() == 0) init(&swapped, block.size());
    block.sync();

    auto role = block.thread_rank() < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        float* stage = ring[tile % STAGES];
        if (role == cuda::pipeline_role::producer) {
            pipe.producer_acquire();
            for (int i = threadIdx.x * 4; i < TILE; i += 128)
                cuda::memcpy_async(stage + i, mine + tile * TILE + i, cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            sum += stage[threadIdx.x - 32];
            pipe.consumer_release();
        }
    }
    auto whole = cuda::make_pipeline(block, &shared);
    for (int tile = 0; tile < 2; tile++) {
        whole.producer_acquire();
        cuda::memcpy_async(block, weights[tile], w + tile * TILE, cuda::aligned_size_t<16>(TILE * 4), whole);
        whole.producer_commit();
    }
    for (int tile = 0; tile < 2; tile++) {
        whole.consumer_wait();
        if (threadIdx.x >= 32) sum *= weights[tile][threadIdx.x - 32];
        whole.consumer_release();
    }
    if (threadIdx.x >= 32) ring[0][threadIdx.x - 32] = sum;
    auto token = swapped.arrive();
    swapped.wait(std::move(token));
    if (threadIdx.x >= 32) out[blockIdx.x * TILE + threadIdx.x - 32] = ring[0][159 - threadIdx.x];
}
