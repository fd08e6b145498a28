// targets: sm_80 sm_90a
// A seven-point stencil: planes move through registers, each block's plane with its halo through shared memory.
extern "C" __global__ void stencil(const float* __restrict__ x, float* __restrict__ y, int nx, int ny, int nz) {
    constexpr int W = 32, H = 4;
    __shared__ float plane[H + 2][W + 2];
    int i = blockIdx.x * W + threadIdx.x, j = blockIdx.y * H + threadIdx.y;
    auto at = [&](int i, int j, int k) {
        return i < 0 || j < 0 || k < 0 || i >= nx || j >= ny || k >= nz ? 0.f : x[(k * ny + j) * nx + i];
    };
    float below = 0, here = at(i, j, 0);
#pragma unroll 2
    for (int k = 0; k < nz; k++) {
        float above = at(i, j, k + 1);
        __syncthreads();
        plane[threadIdx.y + 1][threadIdx.x + 1] = here;
        if (threadIdx.y == 0) plane[0][threadIdx.x + 1] = at(i, j - 1, k);
        if (threadIdx.y == H - 1) plane[H + 1][threadIdx.x + 1] = at(i, j + 1, k);
        if (threadIdx.x == 0) plane[threadIdx.y + 1][0] = at(i - 1, j, k);
        if (threadIdx.x == W - 1) plane[threadIdx.y + 1][W + 1] = at(i + 1, j, k);
        __syncthreads();
        float sides = plane[threadIdx.y][threadIdx.x + 1] + plane[threadIdx.y + 2][threadIdx.x + 1] +
                      plane[threadIdx.y + 1][threadIdx.x] + plane[threadIdx.y + 1][threadIdx.x + 2];
        if (i < nx && j < ny) y[(k * ny + j) * nx + i] = 6 * here - sides - below - above;
        below = here, here = above;
    }
}
