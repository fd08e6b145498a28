// targets: sm_80 sm_90a
// Loops that diverge in every lane, with early returns.
extern "C" __global__ void mandelbrot(int* out, int width, int height, int most) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    double cr = -2 + 3.0 * x / width, ci = -1.25 + 2.5 * y / height, r = 0, i = 0;
    int n = 0;
    while (n < most) {
        if (__dadd_rn(__dmul_rn(r, r), __dmul_rn(i, i)) > 4) break;
        double t = __dadd_rn(__dadd_rn(__dmul_rn(r, r), -__dmul_rn(i, i)), cr);
        i = __dadd_rn(__dmul_rn(2 * r, i), ci), r = t, n++;
    }
    out[y * width + x] = n;
}
