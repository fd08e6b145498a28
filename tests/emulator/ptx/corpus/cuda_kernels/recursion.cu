// targets: sm_80 sm_90a sm_100a
// Recursion, tables of function pointers, virtual calls, alloca and the heap.
typedef int (*Operation)(int, int);
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int scaled(int a, int b) { return fibonacci(a & 7) * b; }
__device__ Operation operations[3] = {add, subtract, scaled};

struct Shape {
    __device__ virtual float area(float x) const = 0;
};
struct Square : Shape {
    float k;
    __device__ Square(float k) : k(k) {}
    __device__ float area(float x) const override { return k * x * x; }
};
struct Strip : Shape {
    float k;
    __device__ Strip(float k) : k(k) {}
    __device__ float area(float x) const override { return k + x; }
};

__device__ __noinline__ void quicksort(int* a, int low, int high) {
    if (low >= high) return;
    int pivot = a[high], at = low;
    for (int j = low; j < high; j++) {
        if (a[j] < pivot) {
            int t = a[at];
            a[at++] = a[j], a[j] = t;
        }
    }
    a[high] = a[at], a[at] = pivot;
    quicksort(a, low, at - 1);
    quicksort(a, at + 1, high);
}

__device__ __noinline__ int stacked(int n) {
    if (n == 0) return 1;
    int* v = (int*)__builtin_alloca(n * sizeof(int));
    for (int i = 0; i < n; i++) v[i] = n + i;
    int r = stacked(n - 1);
    for (int i = 0; i < n; i++) r += v[i];
    return r;
}

extern "C" __global__ void recursion(const int* x, int* out, float* areas) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = fibonacci(i % 9);
    out[i + 64] = operations[x[i] % 3](i, x[i]);
    Square square(2.f);
    Strip strip(3.f);
    const Shape* shape = x[i] & 1 ? (const Shape*)&square : (const Shape*)&strip;
    areas[i] = shape->area(i);
    int v[8], s = 0;
    for (int j = 0; j < 8; j++) v[j] = (i * 7 + j * 5) % 11;
    quicksort(v, 0, 7);
    for (int j = 0; j < 8; j++) s = s * 11 + v[j];
    out[i + 128] = s;
    int* heap = (int*)malloc(16);
    heap[0] = i, heap[3] = 7;
    out[i + 192] = heap[0] + heap[3] + stacked(i % 6);
    free(heap);
}
