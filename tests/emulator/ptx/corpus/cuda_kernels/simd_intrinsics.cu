// targets: sm_80 sm_90a
// Intrinsics on the parts of a register, bit by bit, and with carries.
extern "C" __global__ void simd_intrinsics(const unsigned* x, const unsigned* y, unsigned* out, int n) {
    int i = threadIdx.x;
    unsigned a = x[i], b = y[i];
    unsigned values[] = {
        __vadd4(a, b), __vaddss2(a, b), __vsubus4(a, b), __vabsdiffu4(a, b), __vabsdiffs2(a, b), __vavgs4(a, b),
        __vavgu2(a, b), __vmaxu4(a, b), __vmins2(a, b), __vcmpgts4(a, b), __vseteq4(a, b & 0xff00ff), __vsadu4(a, b),
        __vneg2(a), __vabsss4(a), (unsigned)__dp2a_lo((int)a, (int)b, 7), __dp4a(a, b, 9u),
        __funnelshift_r(a, b, 13), __funnelshift_lc(a, b, b & 63), __byte_perm(a, b, 0x7531), __brev(a ^ b),
        (unsigned)__ffsll((unsigned long long)a << 32), (unsigned)__fns(a, 3, 4), __vhaddu4(a, b),
        __viaddmax_s16x2(a, b, 0x00070007), __vimin3_u16x2(a, b, 0x7fff7fff), (unsigned)__viaddmin_s32_relu(a, b, 99),
        __usad(a, b, 3), (unsigned)__rhadd((int)a, (int)b), __uhadd(a, b), (unsigned)__mul24(a, b),
    };
    for (int k = 0; k < sizeof(values) / 4; k++) out[k * n + i] = values[k];
    unsigned __int128 wide = (unsigned __int128)((unsigned long long)a << 32 | b) * ((unsigned long long)b << 32 | a);
    wide += (unsigned __int128)a << 100;
    unsigned long long *w = (unsigned long long*)(out + 30 * n);
    unsigned __int128 quotient = wide / (((unsigned __int128)b << 20) | 1);
    w[i * 3] = wide, w[i * 3 + 1] = wide >> 64, w[i * 3 + 2] = quotient;
}
