// targets: sm_80 sm_90a sm_100a
// Packed halves and bfloat16s.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void half_math(const __half2* x, const __half2* y, __half2* out, const __nv_bfloat162* p,
                                     const __nv_bfloat162* q, __nv_bfloat162* out2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 a = x[i], b = y[i];
    out[i] = __hfma2(a, b, __hadd2(a, b));
    out[n + i] = __hmax2(__hmul2(a, b), __hneg2(__habs2(a)));
    out[2 * n + i] = __hsub2(h2exp2(b), h2rcp(__hadd2(__habs2(a), __float2half2_rn(1.f))));
    out[3 * n + i] = __hgt2(a, b);
    out[4 * n + i] = __lowhigh2highlow(__hfma2_relu(a, b, a));
    __nv_bfloat162 c = p[i], d = q[i];
    out2[i] = __hfma2(c, d, c);
    out2[n + i] = __hmin2(__hadd2(c, d), __hmul2(c, d));
    out2[2 * n + i] = __floats2bfloat162_rn(__low2float(c) * 3.f, __high2float(d) / 3.f);
}
