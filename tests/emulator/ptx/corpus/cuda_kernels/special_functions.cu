// targets: sm_90a
// The less usual functions of the mathematical library, in both precisions.
extern "C" __global__ void special_functions(const double* x, double* out, float* outf, int n) {
    int i = threadIdx.x;
    double a = x[i];
    float p = a;
    double d[] = {erfc(a), erfinv(a / 8), tgamma(fabs(a) + 0.3), j0(a * 3), j1(a * 2), cyl_bessel_i0(a),
                  normcdf(a), normcdfinv(0.5 + a / 20), sinpi(a), cospi(a), expm1(a), exp10(a), log2(fabs(a) + 1),
                  asinh(a), acosh(fabs(a) + 1), atanh(a / 8), cbrt(a), rcbrt(a), erfcx(fabs(a))};
    for (int k = 0; k < 19; k++) out[k * n + i] = d[k];
    float f[] = {erfcf(p), tgammaf(fabsf(p) + 0.3f), j1f(p * 3), normcdff(p), sinpif(p), expm1f(p), exp10f(p),
                 asinhf(p), atanhf(p / 8), acosf(p / 8), tanf(p), sinhf(p), __powf(fabsf(p), 1.5f), __sinf(p),
                 __expf(p), __logf(fabsf(p) + 1), __fdividef(p, 3.7f), __saturatef(p), rhypotf(p, 2.f), norm3df(p, 1, 2)};
    for (int k = 0; k < 20; k++) outf[k * n + i] = f[k];
}
