// targets: sm_80 sm_90a
// 64-bit and high multiplication, division, bit fields, bytes and dot products of bytes.
extern "C" __global__ void integer_functions(const int* x, const int* y, int* out, long long* wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, a = x[i], b = y[i];
    unsigned u = a, v = b;
    long long l = (long long)a << 20 ^ b, m = b;
    out[i] = __mulhi(a, b), out[n + i] = __brev(u) ^ __ffs(b), out[2 * n + i] = __byte_perm(u, v, 0x2537);
    out[3 * n + i] = __funnelshift_l(u, v, 11), out[4 * n + i] = __dp4a(a, b, 5), out[5 * n + i] = __usad(u, v, 3);
    out[6 * n + i] = (int)(u / (v | 1u)) + (int)(u % (v | 1u)), out[7 * n + i] = __vadd4(u, v) ^ __vmaxs2(u, v);
    out[8 * n + i] = __clz(u) + __popcll((unsigned long long)l), out[9 * n + i] = (a << 5) >> 20;
    wide[i] = l / m + l % m, wide[n + i] = __mul64hi(l, l), wide[2 * n + i] = (unsigned long long)l / 1000003u;
    wide[3 * n + i] = l * m, wide[4 * n + i] = (l >> 7) ^ (m << 33);
}
