// targets: sm_80 sm_90a
// C = A B^T in f16 with f32 sums: cp.async into a swizzled ring, ldmatrix, mma.sync; two stages.
#include <cuda_fp16.h>
#include <cstdint>
template <int M, int N, int K>
__device__ void load(uint32_t a_to, uint32_t b_to, const __half* a, const __half* b, int k) {
    for (int i = threadIdx.x; i < (M + N) * K / 8; i += blockDim.x) {
        int row = i / (K / 8), chunk = i % (K / 8);
        bool first = row < M;
        const __half* from = (first ? a + row * k : b + (row - M) * k) + chunk * 8;
        uint32_t to = (first ? a_to + row * K * 2 : b_to + (row - M) * K * 2) + ((chunk ^ (row >> 1 & 3)) * 16);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ void load_matrix(uint32_t (&r)[4], uint32_t tile, int row, int chunk, int width) {
    uint32_t from = tile + row * width + ((chunk ^ (row >> 1 & 3)) * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
template <int M, int N, int K>
__device__ void gemm(const __half* a, const __half* b, float* c, int n, int k) {
    __shared__ alignas(128) __half tile_a[2][M * K], tile_b[2][N * K];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wm = warp % 2 * (M / 2), wn = warp / 2 * (N / 2);
    float sum[M / 32][N / 16][4] = {};
    a += blockIdx.x * M * k, b += blockIdx.y * N * k;
    auto at = [](void* p) { return (uint32_t)__cvta_generic_to_shared(p); };
    load<M, N, K>(at(tile_a[0]), at(tile_b[0]), a, b, k);
    for (int step = 0; step < k / K; step++) {
        if (step + 1 < k / K)
            load<M, N, K>(at(tile_a[(step + 1) & 1]), at(tile_b[(step + 1) & 1]), a + (step + 1) * K, b + (step + 1) * K, k);
        else
            asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        for (int kk = 0; kk < K / 16; kk++) {
            uint32_t ra[M / 32][4], rb[N / 32][4];
            for (int i = 0; i < M / 32; i++)
                load_matrix(ra[i], at(tile_a[step & 1]), wm + i * 16 + lane % 16, kk * 2 + lane / 16, K * 2);
            for (int j = 0; j < N / 32; j++)
                load_matrix(rb[j], at(tile_b[step & 1]), wn + j * 16 + lane % 8 + lane / 16 * 8, kk * 2 + lane / 8 % 2, K * 2);
            for (int i = 0; i < M / 32; i++)
                for (int j = 0; j < N / 16; j++) {
                    float* d = sum[i][j];
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                        "{%0, %1, %2, %3};"
                        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                        : "r"(ra[i][0]), "r"(ra[i][1]), "r"(ra[i][2]), "r"(ra[i][3]), "r"(rb[j / 2][j % 2 * 2]),
                          "r"(rb[j / 2][j % 2 * 2 + 1]));
                }
        }
        __syncthreads();
    }
    for (int i = 0; i < M / 32; i++)
        for (int j = 0; j < N / 16; j++)
            for (int h = 0; h < 2; h++) {
                int row = blockIdx.x * M + wm + i * 16 + h * 8 + lane / 4, column = blockIdx.y * N + wn + j * 8 + lane % 4 * 2;
                *(float2*)(c + row * n + column) = make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
            }
}
extern "C" __global__ void gemm_ldmatrix(const __half* a, const __half* b, float* c, int n, int k) {
    gemm<64, 64, 32>(a, b, c, n, k);
}
