// targets: sm_80 sm_90a
// Double buffering with cp.async: a dot product of rows with a vector.
#include <cuda_pipeline.h>
extern "C" __global__ void async_copy_ring(const float4* x, const float4* y, float* out, int tiles) {
    __shared__ float4 ring[2][2][128];
    int t = threadIdx.x;
    x += blockIdx.x * tiles * 128;
    float sum = 0;
    __pipeline_memcpy_async(&ring[0][0][t], x + t, 16);
    __pipeline_memcpy_async(&ring[0][1][t], y + t, 16);
    __pipeline_commit();
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            __pipeline_memcpy_async(&ring[(tile + 1) & 1][0][t], x + (tile + 1) * 128 + t, 16);
            __pipeline_memcpy_async(&ring[(tile + 1) & 1][1][t], y + (tile + 1) * 128 + t, 16);
        }
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 a = ring[tile & 1][0][t ^ 1], b = ring[tile & 1][1][t ^ 1];
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        __syncthreads();
    }
    atomicAdd(out + blockIdx.x, sum);
}
