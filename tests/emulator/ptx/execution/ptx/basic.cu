// Kernels whose PTX is kept beside this file's tests.
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
extern "C" {
__global__ void axpy(float* y, const float* x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}
__global__ void transpose(float* out, const float* in, int rows, int cols) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void reduce_sum(float* out, const float* in, int n) {
  __shared__ float part[32];
  float s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += in[blockIdx.x * n + i];
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffff, s, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.f;
    for (int d = 16; d; d >>= 1) s += __shfl_down_sync(0xffffffff, s, d);
    if (threadIdx.x == 0) out[blockIdx.x] = s;
  }
}
__global__ void histogram(unsigned* bins, const uint8_t* data, int n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
__global__ void collatz(int* steps, int n) {  // divergent loops
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long v = i + 1; int c = 0;
  while (v != 1) { v = (v & 1) ? 3 * v + 1 : v / 2; ++c; }
  steps[i] = c;
}
__global__ void softmax(float* out, const float* in, int cols) {
  extern __shared__ float row[];
  const float* p = in + blockIdx.x * cols;
  float m = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) m = fmaxf(m, p[i]);
  for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, d));
  float s = 0;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) { float e = expf(p[i] - m); row[i] = e; s += e; }
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffff, s, d);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) out[blockIdx.x * cols + i] = row[i] / s;
}
__global__ void integer_mix(unsigned long long* out, const unsigned* a, const int* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = a[i]; int y = b[i];
  unsigned long long r = __brev(x) ^ __clz(x) ^ (unsigned long long)__popc(x) << 32;
  r += __umulhi(x, (unsigned)y); r ^= (unsigned long long)__mulhi((int)x, y) << 7;
  r += x / ((unsigned)y | 1u); r += (unsigned)((int)x / (y | 1)); r ^= x % ((unsigned)y | 1u); r += (unsigned)((int)x % (y | 1));
  r ^= __byte_perm(x, (unsigned)y, x & 0x7777); r += __funnelshift_l(x, (unsigned)y, x & 31); r ^= __ffs(x);
  r += (unsigned)max((int)x, y) + min(x, (unsigned)y); r ^= (long long)y * (long long)(int)x; r += r / ((unsigned long long)x | 1ull);
  r ^= r % ((unsigned long long)(unsigned)y | 1ull); r += __sad((int)x, y, x); r ^= (unsigned)abs(y); r = r * 0x9E3779B97F4A7C15ull + (r >> 29);
  out[i] = r;
}
__global__ void half_mix(__half2* out, const __half2* a, const __half2* b, __nv_bfloat162* ob, const __nv_bfloat162* ab, const float* f, uint8_t* o8, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = __hfma2(a[i], b[i], __hmax2(a[i], b[i]));
  ob[i] = __hadd2(__hmul2(ab[i], ab[i]), __float2bfloat162_rn(f[i]));
  o8[i] = (uint8_t)fminf(fmaxf(rintf(f[i] * 10), 0), 255);
}
__device__ __noinline__ float helper(float x, int k, float* scratch) { for (int i = 0; i < k; ++i) { scratch[i] = x; x = x * 0.5f + i; } return x + scratch[k / 2]; }
__global__ void calls(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float scratch[16];
  if (i < n) out[i] = helper(in[i], 3 + i % 5, scratch) + helper(in[i] + 1, 4, scratch);
}
__global__ void switches(int* out, const int* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = in[i], r;
  switch (v) { case 0: r = 10 * i; break; case 1: r = i * i; break; case 2: r = -i; break; case 3: r = i ^ 0x55; break; case 4: r = i << 3; break; case 5: r = i / 3; break; case 6: r = i % 7; break; default: r = v; }
  out[i] = r;
}
__global__ void cpasync(float* out, const float* in, int tiles) {
  __shared__ __align__(16) float buf[3][512];
  int t = threadIdx.x;
  float s[4] = {0, 0, 0, 0};
  for (int k = 0; k < 2; ++k) { if (k < tiles) __pipeline_memcpy_async(&buf[k][t * 4], in + k * 512 + t * 4, 16); __pipeline_commit(); }
  for (int k = 0; k < tiles; ++k) {
    __pipeline_wait_prior(1);
    __syncthreads();
    if (k + 2 < tiles) __pipeline_memcpy_async(&buf[(k + 2) % 3][t * 4], in + (k + 2) * 512 + t * 4, 16);
    __pipeline_commit();
    for (int j = 0; j < 4; ++j) s[j] += buf[k % 3][(t + 128 * j) ^ 1];
  }
  for (int j = 0; j < 4; ++j) out[t + 128 * j] = s[j];
}
__global__ void mma_gemm(float* c, const __half* a, const __half* b, int k) {  // one warp, 16x8, A row-major, B column-major
  __shared__ __align__(16) __half as[16 * 16], bs[8 * 16];
  int lane = threadIdx.x;
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < k; i += 16) {
    *(uint4*)&as[lane * 8] = *(const uint4*)&a[(lane / 2) * k + i + (lane % 2) * 8];
    if (lane < 16) *(uint4*)&bs[lane * 8] = *(const uint4*)&b[(lane / 2) * k + i + (lane % 2) * 8];
    __syncwarp();
    unsigned ra[4], rb[2];
    unsigned pa = __cvta_generic_to_shared(&as[(lane % 16) * 16 + (lane / 16) * 8]), pb = __cvta_generic_to_shared(&bs[(lane % 8) * 16 + (lane / 8 % 2) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    __syncwarp();
  }
  int g = lane / 4, t = lane % 4;
  c[g * 8 + 2 * t] = d[0]; c[g * 8 + 2 * t + 1] = d[1]; c[(g + 8) * 8 + 2 * t] = d[2]; c[(g + 8) * 8 + 2 * t + 1] = d[3];
}
__global__ void doubles(double* out, const double* a, const double* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = sqrt(fabs(a[i])) / (b[i] * b[i] + 1.0) + fma(a[i], b[i], floor(a[i]));
}
__constant__ float coefficients[4] = {1.f, -2.f, 0.5f, 3.f};
__device__ int counter = 7;
__global__ void constants(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { out[i] = coefficients[i & 3] * i; if (i == 0) atomicAdd(&counter, 1); }
}
__global__ void warp_ops(unsigned* out, const int* in) {
  int v = in[threadIdx.x];
  unsigned b = __ballot_sync(0xffffffff, v > 0);
  unsigned m = __match_any_sync(0xffffffff, v);
  unsigned r = __reduce_add_sync(0xffffffff, (unsigned)v) + (unsigned)__reduce_max_sync(0xffffffff, v);
  int up = __shfl_up_sync(0xffffffff, v, 3), idx = __shfl_sync(0xffffffff, v, threadIdx.x * 7 + 1, 8);
  out[threadIdx.x * 4] = b + __any_sync(0xffffffff, v > 5) + 2 * __all_sync(0xffffffff, v < 100);
  out[threadIdx.x * 4 + 1] = m; out[threadIdx.x * 4 + 2] = r + up; out[threadIdx.x * 4 + 3] = idx + __activemask();
}
}
