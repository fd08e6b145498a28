// targets: sm_80 sm_90a
// libm in single and double precision, with its slow paths.
extern "C" __global__ void math_library(const float* x, float* out, const double* y, double* out2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    out[i] = sinf(v * 1e6f), out[n + i] = powf(fabsf(v), 1.7f), out[2 * n + i] = erff(v), out[3 * n + i] = tanhf(v);
    out[4 * n + i] = lgammaf(fabsf(v) + 0.5f), out[5 * n + i] = atan2f(v, 0.3f), out[6 * n + i] = cbrtf(v);
    out[7 * n + i] = fmodf(v * 100.f, 0.7f), out[8 * n + i] = log1pf(fabsf(v)), out[9 * n + i] = rintf(v * 10.f);
    double w = y[i];
    out2[i] = sin(w), out2[n + i] = exp(w), out2[2 * n + i] = log(fabs(w)), out2[3 * n + i] = sqrt(fabs(w)) / (1 + w * w);
    out2[4 * n + i] = floor(w * 7) + trunc(w) + (double)(long long)(w * 1e9), out2[5 * n + i] = fma(w, w, -w);
}
