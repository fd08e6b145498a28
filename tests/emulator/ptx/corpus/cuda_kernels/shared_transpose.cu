// targets: sm_80 sm_90a
// A transpose through padded shared memory, with a two-dimensional block.
extern "C" __global__ void shared_transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (r + j < rows && c < columns) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (r + j < columns && c < rows) out[(r + j) * rows + c] = tile[threadIdx.x][threadIdx.y + j];
}
