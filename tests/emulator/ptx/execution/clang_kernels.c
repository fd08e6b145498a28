// What clang's PTX back end writes for C, that nvcc does not: structures passed by value through the address of an
// argument, jump tables, 128-bit integers, checked arithmetic, funnel shifts, calls through a table.

typedef unsigned u32;
typedef unsigned long u64;
typedef unsigned char u8;
typedef __int128 i128;
typedef unsigned __int128 u128;

#define KERNEL __attribute__((nvptx_kernel)) void
#define LANE __nvvm_read_ptx_sreg_tid_x()

struct part {
    int count;
    double weight;
    signed char codes[5];
    short level;
    float sums[3];
};

__attribute__((noinline)) static struct part changed(struct part p, int i) {
    p.count += i;
    p.weight *= i;
    p.codes[i % 5] = i;
    p.level -= i;
    p.sums[i % 3] = i * 0.5f;
    return p;
}

KERNEL structures(struct part p, struct part *out) {
    struct part first = changed(p, LANE);
    out[LANE] = first;
    out[LANE].count += p.count;
}

KERNEL choices(int *out, int *x) {
    int i = LANE, r = 0;
    switch (x[i]) {
    case 0: r = 5; break;
    case 1: r = i * 3; break;
    case 2: r = -7;
    case 3: r += 11; break;
    case 4: for (int k = 0; k < i; k++) r += k; break;
    case 5: r = i / 3; break;
    case 6: r = i % 5; break;
    case 7: return;
    default: r = -1;
    }
    out[i] = r * 2;
}

KERNEL wide(u64 *out, u64 *x) {
    int i = LANE;
    u128 a = (u128)x[4 * i + 1] << 64 | x[4 * i], b = (u128)x[4 * i + 3] << 64 | x[4 * i + 2];
    int by = b & 127;
    u128 found[6] = {a * b, a - b, a << by, a >> by, (u128)((i128)a >> by), a < b ? a ^ b : ~a};
    for (int k = 0; k < 6; k++) {
        out[12 * i + 2 * k] = (u64)found[k];
        out[12 * i + 2 * k + 1] = (u64)(found[k] >> 64);
    }
}

KERNEL checked(int *out, int *x) {
    int i = LANE, a = x[2 * i], b = x[2 * i + 1], r;
    out[4 * i] = __builtin_sadd_overflow(a, b, &r) ? -1 : r;
    out[4 * i + 1] = __builtin_smul_overflow(a, b, &r) ? -1 : r;
    out[4 * i + 2] = __builtin_elementwise_add_sat(a, b);
    out[4 * i + 3] = __builtin_rotateleft32(a, i & 31) ^ __builtin_bitreverse32(b);
}

KERNEL hashes(u32 *out, u8 *x) {
    u8 turned[40];
    u32 hash = 2166136261u;
    for (int k = 0; k < 40; k++) turned[(k * 7 + LANE) % 40] = x[40 * LANE + k];
    for (int k = 0; k < 40; k++) hash = (hash ^ turned[k]) * 16777619u;
    out[LANE] = hash;
}

static int sum(int a, int b) { return a + b; }
static int product(int a, int b) { return a * b; }
static int ackermann(int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
static int (*const table[3])(int, int) = {sum, product, ackermann};

KERNEL through_a_table(int *out, int *x) { out[LANE] = table[x[LANE]](LANE % 3, LANE % 5); }
