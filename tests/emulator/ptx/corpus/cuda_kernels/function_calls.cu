// targets: sm_80 sm_90a sm_100a
// Calls that are not inlined: by value, by reference, and of a structure.
struct Pair { float a; int b; };
__device__ __noinline__ float power(float x, int n) {
    float result = 1;
    for (; n; n >>= 1, x *= x) if (n & 1) result *= x;
    return result;
}
__device__ __noinline__ void rotate(int* values, int by) {
    int kept[4];
    for (int i = 0; i < 4; i++) kept[i] = values[(i + by) & 3];
    for (int i = 0; i < 4; i++) values[i] = kept[i];
}
__device__ __noinline__ Pair combine(Pair p, float x) { return {p.a * x + power(x, p.b), p.b + 1}; }
extern "C" __global__ void function_calls(const float* x, float* out, int* turned) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Pair p = {1.f, i % 5};
    for (int k = 0; k < 3; k++) p = combine(p, x[i]);
    out[i] = p.a;
    int values[4] = {i, 2 * i, 3 * i, 4 * i};
    if (i & 1) rotate(values, i >> 1);
    for (int k = 0; k < 4; k++) turned[4 * i + k] = values[k];
}
