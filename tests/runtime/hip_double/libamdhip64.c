// A stand-in for AMD's runtime: every function hands its name and its arguments to the Python function that asked for them.
#include <stdint.h>

typedef int64_t (*receiver)(const char *name, const uint64_t *arguments);
static receiver to;

void double_hand_to(receiver given) { to = given; }

#define FUNCTION(name)                                                                                                \
    int64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,      \
                 uint64_t i, uint64_t j, uint64_t k) {                                                                \
        uint64_t arguments[] = {a, b, c, d, e, f, g, h, i, j, k};                                                     \
        return to ? to(#name, arguments) : 3; /* hipErrorNotInitialized */                                            \
    }

FUNCTION(hipInit)
FUNCTION(hipGetErrorName)
FUNCTION(hipGetErrorString)
FUNCTION(hipGetDeviceCount)
FUNCTION(hipGetDevice)
FUNCTION(hipSetDevice)
FUNCTION(hipGetDevicePropertiesR0600)
FUNCTION(hipDeviceSynchronize)
FUNCTION(hipMalloc)
FUNCTION(hipFree)
FUNCTION(hipMemcpy)
FUNCTION(hipMemsetD32Async)
FUNCTION(hipPointerGetAttributes)
FUNCTION(hipModuleLoadData)
FUNCTION(hipModuleUnload)
FUNCTION(hipModuleGetFunction)
FUNCTION(hipFuncSetAttribute)
FUNCTION(hipModuleLaunchKernel)
FUNCTION(hipStreamCreate)
FUNCTION(hipStreamDestroy)
FUNCTION(hipStreamSynchronize)
FUNCTION(hipEventCreate)
FUNCTION(hipEventDestroy)
FUNCTION(hipEventRecord)
FUNCTION(hipEventSynchronize)
FUNCTION(hipEventElapsedTime)
