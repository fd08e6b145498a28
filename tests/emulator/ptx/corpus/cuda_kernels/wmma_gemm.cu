// targets: sm_80 sm_90a sm_100a
// The warp matrix API: products of every type, from shared and global memory, fragments changed element by element.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

// A block of 64 x 64 by four warps: f16 in, f32 accumulated, alpha * a b + beta * c.
__device__ void half_block(const half* a, const half* b, float* c, int k) {
    __shared__ half as[64][24], bs[16][72];
    int warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4], old;
    for (auto& s : sum) wmma::fill_fragment(s, 0.f);
    for (int at = 0; at < k; at += 16) {
        for (int i = threadIdx.x; i < 64 * 16; i += 128) {
            as[i / 16][i % 16] = a[i / 16 * k + at + i % 16];
            bs[i / 64][i % 64] = b[(at + i / 64) * 64 + i % 64];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
        wmma::load_matrix_sync(x, &as[warp * 16][0], 24);
        for (int j = 0; j < 4; j++) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
            wmma::load_matrix_sync(y, &bs[0][j * 16], 72);
            wmma::mma_sync(sum[j], x, y, sum[j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) {
        wmma::load_matrix_sync(old, c + warp * 16 * 64 + j * 16, 64, wmma::mem_row_major);
        for (int i = 0; i < old.num_elements; i++) old.x[i] = 2 * sum[j].x[i] + 3 * old.x[i];
        wmma::store_matrix_sync(c + warp * 16 * 64 + j * 16, old, 64, wmma::mem_row_major);
    }
}

template <int M, int N, int K, typename A, typename B, typename C>
__device__ void tile(const A* a, const B* b, C* c) {  // a [M, K] by rows, b [K, N] by columns, c [N, M] by columns
    wmma::fragment<wmma::matrix_a, M, N, K, A, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, M, N, K, B, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, M, N, K, C> z;
    wmma::load_matrix_sync(x, a, K);
    wmma::load_matrix_sync(y, b, K);
    wmma::fill_fragment(z, C(1));
    wmma::mma_sync(z, x, y, z);
    wmma::store_matrix_sync(c, z, M, wmma::mem_col_major);
}

__device__ void tf32_tile(const float* a, const float* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> z;
    wmma::load_matrix_sync(x, a, 8);
    wmma::load_matrix_sync(y, b, 8);
    for (auto& v : x.x) v = wmma::__float_to_tf32(v);
    for (auto& v : y.x) v = wmma::__float_to_tf32(v);
    wmma::fill_fragment(z, 1.f);
    wmma::mma_sync(z, x, y, z);
    wmma::store_matrix_sync(c, z, 16, wmma::mem_col_major);
}

extern "C" __global__ void wmma_gemm(const half* a, const half* b, float* c, int k, const __nv_bfloat16* ab,
                                     const __nv_bfloat16* bb, float* cb, const signed char* as, const signed char* bs,
                                     int* cs, const float* at, const float* bt, float* ct, const double* ad,
                                     const double* bd, double* cd, half* ch) {
    half_block(a, b, c, k);
    switch (threadIdx.x / 32) {
        case 0: tile<8, 32, 16>(ab, bb, cb); break;
        case 1: tile<32, 8, 16>(as, bs, cs); break;
        case 2: tf32_tile(at, bt, ct); break;
        default: tile<8, 8, 4>(ad, bd, cd); tile<16, 16, 16>(a, b, ch);
    }
}
