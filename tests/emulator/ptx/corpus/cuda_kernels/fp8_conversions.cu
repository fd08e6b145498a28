// targets: sm_80 sm_90a sm_100a
// FP8 conversions, in hardware on sm_90 and in integers on sm_80.
#include <cuda_fp8.h>
extern "C" __global__ void fp8_conversions(const float* x, unsigned char* e4m3, unsigned char* e5m2, float* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    e4m3[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    e5m2[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
    back[i] = __half2float(__nv_cvt_fp8_to_halfraw(e4m3[i], __NV_E4M3));
    back[n + i] = __half2float(__nv_cvt_fp8_to_halfraw(e5m2[i], __NV_E5M2));
}
