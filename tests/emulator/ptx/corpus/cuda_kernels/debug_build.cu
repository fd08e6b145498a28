// targets: sm_90a
// options: -G
// A debug build: nothing is inlined, every variable lies in local memory, and .loc and DWARF sections stand in the text.
#include <cassert>
#include <cstdio>
struct Shape { __device__ virtual float area() const = 0; float scale; };
struct Circle : Shape { float r; __device__ float area() const override { return 3.f * r * r * scale; } };
struct Square : Shape { float a; __device__ float area() const override { return a * a * scale; } };
template <int N> struct Small { int v[N]; __device__ int& operator[](int i) { assert(i < N); return v[i]; } };
__device__ int ackermann(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }
typedef int (*Op)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ Op ops[2] = {plus, times};
__constant__ int table[4] = {3, 1, 4, 1};
__device__ int counter = 5;
__device__ int* where = &counter;
extern "C" __global__ void debug_build(float* areas, int* ints, double* d, int n) {
    int t = threadIdx.x;
    Circle c; c.scale = 2; c.r = t;
    Square s; s.scale = 1; s.a = t + 1;
    Shape* p = t & 1 ? (Shape*)&c : (Shape*)&s;
    areas[t] = p->area();
    Small<8> small;
    for (int i = 0; i < 8; i++) small[i] = i * t;
    ints[t] = small[t % 8] + ops[t & 1](t, 7) + table[t & 3] + *where;
    ints[t + 32] = ackermann(1 + t % 2, t % 3);
    switch (t % 5) { case 0: d[t] = 1.0 / (t + 1); break; case 1: d[t] = t * 0.5; break; case 2: d[t] = sqrt((double)t); break; case 3: d[t] = (double)(float)t; break; default: d[t] = -t; }
    for (int i = 0; i < n; ++i) { if (i == t) continue; if (i > t + 3) break; d[t] += i; }
    __shared__ int sum;
    if (t == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, t);
    __syncthreads();
    if (t == 0) { ints[64] = sum; printf("sum %d %s %.3f %lld %c\n", sum, "text", 1.5, 1ll << 40, 'x'); }
}
