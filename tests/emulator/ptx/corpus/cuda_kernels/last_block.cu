// targets: sm_80 sm_90a
// The last block to finish adds what the others left: fences, a ticket, volatile flags.
extern "C" __global__ void last_block(const int* x, int* parts, unsigned* ticket, int* out) {
    __shared__ bool last;
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = 16; step; step >>= 1) v += __shfl_down_sync(~0u, v, step);
    if (threadIdx.x % 32 == 0) atomicAdd(parts + blockIdx.x, v);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        int total = 0;
        for (int b = 0; b < gridDim.x; b++) total += atomicAdd(parts + b, 0);
        *out = total;
    }
}
