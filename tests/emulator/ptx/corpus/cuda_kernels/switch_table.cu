// targets: sm_80 sm_90a
// A dense switch in divergent lanes, then one on the warp: brx.idx.
extern "C" __global__ void switch_table(const int* x, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i], r;
    switch (v) {
        case 0: r = i * 7; break;
        case 1: r = i ^ 0x55; break;
        case 2: r = -i;
        case 3: r = i + 1; for (int k = 0; k < i % 4; k++) r *= 3; break;
        case 4: r = __popc(i); break;
        case 5: r = i << 4; break;
        case 6: r = i % 13; break;
        default: r = -1;
    }
    switch (threadIdx.x / 32) {
        case 0: r += 100; break;
        case 1: r -= 100; break;
        case 2: r *= 2; break;
        case 3: r = ~r; break;
    }
    out[i] = r;
}
