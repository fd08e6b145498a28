// Kernels that are compiled at several levels and run.
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define KERNEL __attribute__((amdgpu_kernel)) void
#define LANE __builtin_amdgcn_workitem_id_x()
#define PLACE (LANE + 128 * __builtin_amdgcn_workgroup_id_x())
typedef short short2 __attribute__((ext_vector_type(2)));
#define SCOPE __MEMORY_SCOPE_WRKGRP
static LOCAL int words[2] __attribute__((loader_uninitialized));
static void meet(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL sorts(GLOBAL int *out, GLOBAL const int *x) {
    int kept[16];
    for (int i = 0; i < 16; i++) kept[i] = x[PLACE * 16 + i];
    for (int i = 1; i < 16; i++) {
        int value = kept[i], j = i - 1;
        for (; j >= 0 && kept[j] > value; j--) kept[j + 1] = kept[j];
        kept[j + 1] = value;
    }
    for (int i = 0; i < 16; i++) out[PLACE * 16 + i] = kept[i];
}

KERNEL divides(GLOBAL long *out, GLOBAL const long *x) {
    long a = x[2 * PLACE], b = x[2 * PLACE + 1];
    out[PLACE * 4] = a / b;
    out[PLACE * 4 + 1] = a % b;
    out[PLACE * 4 + 2] = (unsigned long)a / (unsigned long)b;
    out[PLACE * 4 + 3] = a * b;
}

KERNEL greatest(GLOBAL float *out, GLOBAL const float *x) {
    __scoped_atomic_fetch_max(out, x[PLACE], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    __scoped_atomic_fetch_add(out + 1, x[PLACE], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

KERNEL dots(GLOBAL int *out, GLOBAL const int *x) {
    int a = x[2 * PLACE], b = x[2 * PLACE + 1];
    out[PLACE * 3] = __builtin_amdgcn_sdot4(a, b, 5, 0);
    out[PLACE * 3 + 1] = __builtin_amdgcn_sdot2(__builtin_bit_cast(short2, a), __builtin_bit_cast(short2, b), 9, 0);
    out[PLACE * 3 + 2] = __builtin_amdgcn_sad_u8(a, b, 7);
}

KERNEL waits(GLOBAL int *out, GLOBAL int *flag) {
    if (LANE == 0) {
        out[0] = 41;
        __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    } else if (LANE == 64) {
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != 1) __builtin_amdgcn_s_sleep(1);
        out[1] = out[0] + 1;
    }
}

KERNEL polls(GLOBAL int *out, GLOBAL int *unused) {
    if (LANE == 0) words[1] = 0;
    meet();
    if (LANE == 0) {
        words[0] = 7;
        __scoped_atomic_store_n(&words[1], 1, __ATOMIC_RELEASE, SCOPE);
    } else if (LANE == 64) {
        while (__scoped_atomic_load_n(&words[1], __ATOMIC_ACQUIRE, SCOPE) != 1) __builtin_amdgcn_s_sleep(1);
        out[0] = words[0];
    }
}

KERNEL looks(GLOBAL int *out, GLOBAL int *unused) {
    if (LANE == 0) words[1] = 0;
    meet();
    if (LANE == 0) {
        words[0] = 7;
        words[1] = 1;
    } else if (LANE == 64) {
        out[0] = words[1] == 1 ? words[0] : 9;
    }
}
