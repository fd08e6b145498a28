// targets: sm_80 sm_90a sm_100a
// printf and assert.
#include <cassert>
#include <cstdio>
extern "C" __global__ void device_printf(const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n > 0);
    if (i < n) printf("%d of %s: %6.2f %lld 0x%04x %c %5.1e|\n", i, "some", x[i], (long long)i << 40, i + 10, 'a' + i, x[i]);
    if (i == n) printf("done\n");
}
