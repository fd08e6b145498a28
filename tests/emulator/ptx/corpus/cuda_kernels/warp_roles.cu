// targets: sm_80 sm_90a
// Producer and consumer warps that meet on named barriers.
extern "C" __global__ void warp_roles(const int* x, int* out, int tiles) {
    __shared__ int ring[2][64];
    int warp = threadIdx.x / 32, t = threadIdx.x % 64;
    if (warp < 2)
        for (int tile = 0; tile < tiles; tile++) {
            if (tile > 1) asm volatile("bar.sync %0, 128;" ::"r"(3 + (tile & 1)) : "memory");
            ring[tile & 1][t] = x[tile * 64 + t] * 2;
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + (tile & 1)) : "memory");
        }
    else
        for (int tile = 0; tile < tiles; tile++) {
            asm volatile("bar.sync %0, 128;" ::"r"(1 + (tile & 1)) : "memory");
            out[tile * 64 + t] = ring[tile & 1][63 - t] + 1;
            if (tile + 2 < tiles) asm volatile("bar.arrive %0, 128;" ::"r"(3 + (tile & 1)) : "memory");
        }
}
