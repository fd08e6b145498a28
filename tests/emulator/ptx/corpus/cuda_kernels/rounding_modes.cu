// targets: sm_80 sm_90a
// Arithmetic in each rounding mode, conversions, and the bits of floating-point numbers.
#include <cmath>
extern "C" __global__ void rounding_modes(const double* x, const double* y, double* out, const float* u, const float* v,
                                          float* outf, long long* ints, int n) {
    int i = threadIdx.x;
    double a = x[i], b = y[i];
    double d[] = {__dadd_rd(a, b), __dadd_ru(a, b), __dmul_rz(a, b), __ddiv_ru(a, b), __fma_rd(a, b, a),
                  __dsqrt_ru(fabs(a)), __drcp_rd(b), fma(a, b, -a * b), fmod(a * 1e5, b), remainder(a * 100, b),
                  ldexp(a, 11), frexp(b, (int*)(ints + 9 * n + i)), nextafter(a, b), hypot(a, b), fdim(a, b),
                  copysign(a, b), rsqrt(fabs(b)), pow(fabs(a), b)};
    for (int k = 0; k < 18; k++) out[k * n + i] = d[k];
    float p = u[i], q = v[i];
    float f[] = {__fadd_rd(p, q), __fsub_ru(p, q), __fmul_rz(p, q), __fdiv_ru(p, q), __fmaf_rd(p, q, p),
                 __fsqrt_rz(fabsf(p)), __frcp_ru(q), __double2float_rd(a), __ll2float_ru((long long)(a * 1e12)),
                 __uint2float_rz(3000000001u + i), nearbyintf(p * 50), modff(q * 9, outf + 13 * n + i), scalbnf(p, -7),
                 };
    for (int k = 0; k < 13; k++) outf[k * n + i] = f[k];
    long long m[] = {__double2ll_rd(a * 1e15), __double2ll_ru(a * 1e15), (long long)__double2ull_rz(fabs(b) * 1e18),
                     __float2int_rn(p * 100), __float2uint_ru(fabsf(q) * 1e9f), __double_as_longlong(a),
                     __double2hiint(b), ilogb(b), llrint(a * 1001)};
    for (int k = 0; k < 9; k++) ints[k * n + i] = m[k];
}
