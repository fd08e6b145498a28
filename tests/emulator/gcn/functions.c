// Functions that a C compiler does not inline: called through a table, by some lanes, and by themselves.
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL __attribute__((amdgpu_kernel)) void
#define FUNCTION __attribute__((noinline)) static int
typedef int (*function)(int);

FUNCTION twice(int x) { return x * 2; }
FUNCTION plus(int x) { return x + 100; }
FUNCTION square(int x) { return x * x; }
static const function table[4] = {twice, plus, square, twice};
static const unsigned short words[5] = {9, 8, 7, 6, 5};
FUNCTION fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

KERNEL by_wave(GLOBAL int *o, int i) {
    int thread = __builtin_amdgcn_workitem_id_x();
    o[thread] = table[(thread >> 6) & 3](thread) + words[i];
}

KERNEL by_lane(GLOBAL int *o, int i) {
    int thread = __builtin_amdgcn_workitem_id_x();
    o[thread] = table[thread & 3](thread) + words[i];
}

KERNEL recursive(GLOBAL int *o, int i) {
    int thread = __builtin_amdgcn_workitem_id_x();
    o[thread] = fibonacci(i + thread % 4);
}
