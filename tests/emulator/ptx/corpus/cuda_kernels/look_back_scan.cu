// targets: sm_80 sm_90a
// A scan of an array in one pass: each block publishes its sum and looks back at those before it.
#include <cuda/atomic>
using Word = cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>;
extern "C" __global__ void look_back_scan(const int* x, int* out, unsigned long long* state, unsigned* next) {
    __shared__ int warps[4], before;
    __shared__ unsigned tile;
    if (threadIdx.x == 0) tile = atomicAdd(next, 1);
    __syncthreads();
    int at = tile * 128 + threadIdx.x, lane = threadIdx.x % 32, sum = x[at];
    for (int d = 1; d < 32; d *= 2) {
        int left = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += left;
    }
    if (lane == 31) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < 4; w++) {
        if (w < threadIdx.x / 32) sum += warps[w];
        total += warps[w];
    }
    if (threadIdx.x == 0) {  // 1: the sum of the tile, 2: of all tiles to here
        Word(state[tile]).store((tile ? 1ull : 2ull) << 32 | (unsigned)total, cuda::memory_order_release);
        int prefix = 0;
        for (int t = (int)tile - 1; t >= 0; t--) {
            unsigned long long seen;
            while (!((seen = Word(state[t]).load(cuda::memory_order_acquire)) >> 32)) __nanosleep(20);
            prefix += (int)seen;
            if (seen >> 33) break;
        }
        if (tile) Word(state[tile]).store(2ull << 32 | (unsigned)(prefix + total), cuda::memory_order_release);
        before = prefix;
    }
    __syncthreads();
    out[at] = before + sum;
}
