// targets: sm_80 sm_90a
// A sparse matrix in compressed rows times a vector, a warp a row; cached and streaming loads, vector stores.
extern "C" __global__ void sparse_rows(const int* starts, const int* columns, const float* values, const float* x, float* y,
                                       float4* copy, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) sum += __ldcs(values + i) * __ldg(x + __ldcs(columns + i));
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) {
        __stcg(y + row, sum);
        __stcs(copy + row, make_float4(sum, -sum, row, 1.f));
    }
}
