// Kernels that make a C compiler use what AMD GPUs have, for reading its code objects.
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define KERNEL __attribute__((amdgpu_kernel)) void
typedef float f4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef _Float16 h2 __attribute__((ext_vector_type(2)));
typedef int i4 __attribute__((ext_vector_type(4)));

static const int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
static const char *const names[2] = {"ab", "cdefgh"};
GLOBAL int counter = 7;
static GLOBAL int zeroed[16];
static LOCAL int shared_words[512] __attribute__((loader_uninitialized));

__attribute__((noinline)) static float helper(float x, int n) {
    for (int i = 0; i < n; i++) x = x * x + 1.5f;
    return x;
}

KERNEL constants(GLOBAL int *o, int i, float f) {
    o[0] = table[i & 7];
    o[1] = counter;
    zeroed[i] = 5;
    o[2] = zeroed[i & 3];
    o[3] = names[i & 1][i];
    o[4] = (int)helper(f, i);
}

KERNEL doubles(GLOBAL double *o, int i) { o[i] = o[i + 1] * 3.7 + o[i] / o[i + 2] + __builtin_sqrt(o[i + 3]); }

KERNEL spills(GLOBAL float *o, int n) {
    float kept[64];
    for (int i = 0; i < 64; i++) kept[i] = o[i] * i;
    for (int i = 0; i < n; i++) kept[(i * 7) & 63] += kept[i & 63];
    o[n] = kept[n & 63];
}

KERNEL reverses(GLOBAL int *o) {
    int lane = __builtin_amdgcn_workitem_id_x();
    shared_words[lane] = o[lane];
    __builtin_amdgcn_s_barrier();
    o[lane] = shared_words[511 - lane] + __builtin_amdgcn_ds_bpermute(lane * 4, o[lane + 1]);
}

KERNEL atomics(GLOBAL int *o, GLOBAL long *p, GLOBAL float *q) {
    int old = __atomic_fetch_add(o, 3, __ATOMIC_ACQ_REL);
    __atomic_fetch_xor(p, (long)old, __ATOMIC_SEQ_CST);
    int expected = old;
    __atomic_compare_exchange_n(o + 1, &expected, 5, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    o[2] = expected + __builtin_popcount(old) + __builtin_clz(old | 1);
    q[0] = __builtin_amdgcn_rcpf(q[1]) + __builtin_amdgcn_fractf(q[2]);
}

KERNEL matrices(GLOBAL f4 *o, GLOBAL h4 *a) {
    int lane = __builtin_amdgcn_workitem_id_x();
    f4 sum = o[lane];
    for (int i = 0; i < 4; i++) sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a[lane + i], a[lane + 64 + i], sum, 0, 0, 0);
    o[lane] = sum;
}

KERNEL halves(GLOBAL h2 *o, GLOBAL unsigned char *b, GLOBAL short *s, GLOBAL long *l, int n) {
    h2 x = o[n];
    for (int i = 0; i < n; i++) x = x * o[i] + (h2){1, 2};
    o[n] = x;
    b[n] = (unsigned char)(b[n] + b[n + 1] * 3);
    s[n] = (short)(s[n] * s[n + 1] > 77 ? s[n] : -s[n]);
    l[n] = l[n] * l[n + 1] / (n + 1) + (l[n] << (n & 63));
}

KERNEL vectors(GLOBAL i4 *o, GLOBAL const i4 *a, int n) {
    int lane = __builtin_amdgcn_workitem_id_x() + n * __builtin_amdgcn_workgroup_id_x();
    i4 v = a[lane];
    if (v.x > v.y) v.z = __builtin_amdgcn_readfirstlane(v.w);
    o[lane] = v.wzyx + __builtin_amdgcn_update_dpp(0, v.x, 0x111, 0xf, 0xf, 0);
}
