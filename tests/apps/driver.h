/* The part of the CUDA driver API that the test programs call, declared in our own words so that no NVIDIA header is
 * needed. One list, three ways to reach the driver; choose with -DVIA_LINK (default), -DVIA_DLSYM or -DVIA_PROC:
 *   VIA_LINK   undefined symbols resolved by the loader (needs -lcuda)
 *   VIA_DLSYM  dlopen("libcuda.so.1") and dlsym of each exported symbol
 *   VIA_PROC   dlsym of cuGetProcAddress_v2 alone, everything else through it, by base name and version
 * Source of names, versions and types: CUDA Driver API reference; checked against crates/driver-api/data. */
#ifndef VCUDA_TESTS_DRIVER_H
#define VCUDA_TESTS_DRIVER_H
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx *CUcontext;
typedef struct CUmod *CUmodule;
typedef struct CUfunc *CUfunction;
typedef struct CUstr *CUstream;
typedef struct CUevt *CUevent;
typedef struct CUarr *CUarray;
typedef struct CUmip *CUmipmappedArray;
typedef struct CUpool *CUmemoryPool;
typedef struct CUgraph_ *CUgraph;
typedef struct CUgraphExec_ *CUgraphExec;
typedef struct CUgraphNode_ *CUgraphNode;
typedef struct CUlib *CUlibrary;
typedef struct CUkern *CUkernel;
typedef unsigned long long CUmemHandle;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef void (*CUhostFn)(void *);

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600,
    CONTEXT_IS_DESTROYED = 709, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902, CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908
};
#define STREAM_NON_BLOCKING 1
#define STREAM_LEGACY ((CUstream)1)
#define STREAM_PER_THREAD ((CUstream)2)
#define EVENT_DISABLE_TIMING 2
#define CAPTURE_GLOBAL 0
#define CAPTURE_THREAD_LOCAL 1
#define CAPTURE_RELAXED 2

typedef struct { size_t Width, Height; unsigned Format, NumChannels; } ArrayDescriptor;
typedef struct { size_t Width, Height, Depth; unsigned Format, NumChannels, Flags; } Array3DDescriptor;
typedef struct {
    unsigned type, requested_handle_types;
    struct { unsigned type; int id; } location;
    void *win32;
    struct { unsigned char compression, gpu_direct_rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} AllocationProp;
typedef struct { struct { unsigned type; int id; } location; unsigned flags; } AccessDesc;
typedef struct {
    unsigned alloc_type, handle_types;
    struct { unsigned type; int id; } location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} PoolProps;
typedef struct {
    unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, shared;
    CUstream stream;
    void *attrs;
    unsigned num_attrs;
} LaunchConfig;
typedef struct {
    CUfunction func;
    unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, shared;
    void **params;
    void **extra;
    void *kern;
    void *ctx;
} KernelNodeParams;
typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned value, element_size;
    size_t width, height;
} MemsetNodeParams;
typedef struct {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch, WidthInBytes, Height;
} Copy2D;
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3 };

/* X(exported symbol, base name, CUDA version of this signature, arguments) */
#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit, cuInit, 2000, (unsigned))                                                                                \
    X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *))                                                           \
    X(cuGetErrorName, cuGetErrorName, 6000, (CUresult, const char **))                                                 \
    X(cuDeviceGet, cuDeviceGet, 2000, (CUdevice *, int))                                                               \
    X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))                                                               \
    X(cuDeviceGetName, cuDeviceGetName, 2000, (char *, int, CUdevice))                                                 \
    X(cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, (CUuuid *, CUdevice))                                                \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t *, CUdevice))                                               \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int *, int, CUdevice))                                        \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))                               \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (CUdevice))                                      \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (CUdevice))                                          \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, (CUdevice, unsigned *, int *))                     \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, (CUcontext *, unsigned, CUdevice))                                            \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, (CUcontext))                                                                \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext))                                                             \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext *))                                                           \
    X(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, (CUcontext))                                                        \
    X(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, (CUcontext *))                                                        \
    X(cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice *))                                                              \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                                                \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *, size_t *))                                                       \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr *, size_t))                                                        \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                  \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))                                   \
    X(cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr))                                                                    \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, (CUdeviceptr *, size_t *, CUdeviceptr))                     \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020, (void **, size_t))                                                      \
    X(cuMemFreeHost, cuMemFreeHost, 2000, (void *))                                                                    \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **, size_t, unsigned))                                               \
    X(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, (CUdeviceptr *, void *, unsigned))                \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))                                      \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr, CUstream))                                                  \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))        \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, (CUmemoryPool *, const PoolProps *))                                    \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (CUmemoryPool))                                                       \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (CUmemoryPool, size_t))                                                 \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, (CUmemoryPool, int, void *))                                \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (CUmemoryPool, int, void *))                                \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool *, CUdevice))                         \
    X(cuMemCreate, cuMemCreate, 10020, (CUmemHandle *, size_t, const AllocationProp *, unsigned long long))            \
    X(cuMemRelease, cuMemRelease, 10020, (CUmemHandle))                                                                \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020,                                                                 \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                                                \
    X(cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr, size_t))                                                \
    X(cuMemMap, cuMemMap, 10020, (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long))                       \
    X(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr, size_t))                                                            \
    X(cuMemSetAccess, cuMemSetAccess, 10020, (CUdeviceptr, size_t, const AccessDesc *, size_t))                        \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, (size_t *, const AllocationProp *, int))    \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, (CUarray *, const ArrayDescriptor *))                                     \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, (CUarray *, const Array3DDescriptor *))                               \
    X(cuArrayGetDescriptor_v2, cuArrayGetDescriptor, 3020, (ArrayDescriptor *, CUarray))                               \
    X(cuArrayDestroy, cuArrayDestroy, 2000, (CUarray))                                                                 \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000,                                                            \
      (CUmipmappedArray *, const Array3DDescriptor *, unsigned))                                                       \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (CUmipmappedArray))                                      \
    X(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, (CUdeviceptr, const void *, size_t))                                        \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void *, CUdeviceptr, size_t))                                              \
    X(cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, (CUdeviceptr, CUdeviceptr, size_t))                                         \
    X(cuMemcpy, cuMemcpy, 4000, (CUdeviceptr, CUdeviceptr, size_t))                                                    \
    X(cuMemcpy2D_v2, cuMemcpy2D, 3020, (const Copy2D *))                                                               \
    X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, (CUdeviceptr, const void *, size_t, CUstream))                    \
    X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, (void *, CUdeviceptr, size_t, CUstream))                          \
    X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                     \
    X(cuMemsetD8_v2, cuMemsetD8, 3020, (CUdeviceptr, unsigned char, size_t))                                           \
    X(cuMemsetD16_v2, cuMemsetD16, 3020, (CUdeviceptr, unsigned short, size_t))                                        \
    X(cuMemsetD32_v2, cuMemsetD32, 3020, (CUdeviceptr, unsigned, size_t))                                              \
    X(cuMemsetD2D8_v2, cuMemsetD2D8, 3020, (CUdeviceptr, size_t, unsigned char, size_t, size_t))                       \
    X(cuMemsetD8Async, cuMemsetD8Async, 3020, (CUdeviceptr, unsigned char, size_t, CUstream))                          \
    X(cuMemsetD32Async, cuMemsetD32Async, 3020, (CUdeviceptr, unsigned, size_t, CUstream))                             \
    X(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule *, const void *))                                            \
    X(cuModuleUnload, cuModuleUnload, 2000, (CUmodule))                                                                \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000, (CUfunction *, CUmodule, const char *))                          \
    X(cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020, (CUdeviceptr *, size_t *, CUmodule, const char *))                \
    X(cuLibraryLoadData, cuLibraryLoadData, 12000,                                                                     \
      (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned))                                 \
    X(cuLibraryUnload, cuLibraryUnload, 12000, (CUlibrary))                                                            \
    X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, (CUkernel *, CUlibrary, const char *))                            \
    X(cuKernelGetFunction, cuKernelGetFunction, 12000, (CUfunction *, CUkernel))                                       \
    X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, (int *, int, CUfunction))                                          \
    X(cuStreamCreate, cuStreamCreate, 2000, (CUstream *, unsigned))                                                    \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, (CUstream *, unsigned, int))                       \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, (CUstream))                                                           \
    X(cuStreamQuery, cuStreamQuery, 2000, (CUstream))                                                                  \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream))                                                      \
    X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (CUstream, CUevent, unsigned))                                       \
    X(cuStreamGetFlags, cuStreamGetFlags, 5050, (CUstream, unsigned *))                                                \
    X(cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, (CUstream, CUdeviceptr, uint32_t, unsigned))                 \
    X(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, (CUstream, CUdeviceptr, uint32_t, unsigned))               \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (CUstream, CUhostFn, void *))                                         \
    X(cuEventCreate, cuEventCreate, 2000, (CUevent *, unsigned))                                                       \
    X(cuEventDestroy_v2, cuEventDestroy, 4000, (CUevent))                                                              \
    X(cuEventRecord, cuEventRecord, 2000, (CUevent, CUstream))                                                         \
    X(cuEventQuery, cuEventQuery, 2000, (CUevent))                                                                     \
    X(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent))                                                         \
    X(cuEventElapsedTime, cuEventElapsedTime, 2000, (float *, CUevent, CUevent))                                       \
    X(cuLaunchKernel, cuLaunchKernel, 4000,                                                                            \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))  \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, (const LaunchConfig *, CUfunction, void **, void **))                 \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000,                                                      \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **))           \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (CUstream, int))                                           \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream, CUgraph *))                                            \
    X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (CUstream, int *))                                              \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, (int *))                            \
    X(cuGraphCreate, cuGraphCreate, 10000, (CUgraph *, unsigned))                                                      \
    X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph))                                                                \
    X(cuGraphGetNodes, cuGraphGetNodes, 10000, (CUgraph, CUgraphNode *, size_t *))                                     \
    X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t))          \
    X(cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000,                                                            \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const KernelNodeParams *))                                 \
    X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000,                                                               \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const MemsetNodeParams *, CUcontext))                      \
    X(cuGraphAddDependencies, cuGraphAddDependencies, 10000,                                                           \
      (CUgraph, const CUgraphNode *, const CUgraphNode *, size_t))                                                     \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, (CUgraphExec *, CUgraph, unsigned long long))   \
    X(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec, CUstream))                                                    \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec))

/* A program that needs more functions defines this list before it includes the header. */
#ifndef EXTRA_FUNCTIONS
#define EXTRA_FUNCTIONS(X)
#endif

#if defined(VIA_DLSYM) || defined(VIA_PROC)
#define X(symbol, base, version, args) static CUresult(*symbol) args;
DRIVER_FUNCTIONS(X)
EXTRA_FUNCTIONS(X)
#undef X
#else
#define X(symbol, base, version, args) extern CUresult symbol args;
DRIVER_FUNCTIONS(X)
EXTRA_FUNCTIONS(X)
#undef X
#endif

/* Finds every function by the chosen way; exits with 77 ("skip") where there is no driver. */
static inline void driver_open(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash must not take along what was printed before it */
#if defined(VIA_DLSYM) || defined(VIA_PROC)
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) {
        printf("skip: %s\n", dlerror());
        exit(77);
    }
#endif
#if defined(VIA_DLSYM)
#define X(symbol, base, version, args)                                                                                 \
    if (!(symbol = (CUresult(*) args)dlsym(lib, #symbol))) { printf("FAIL no symbol %s\n", #symbol); exit(1); }
    DRIVER_FUNCTIONS(X)
    EXTRA_FUNCTIONS(X)
#undef X
#elif defined(VIA_PROC)
    CUresult (*get)(const char *, void **, int, unsigned long long, int *) =
        (CUresult(*)(const char *, void **, int, unsigned long long, int *))dlsym(lib, "cuGetProcAddress_v2");
    int status = -1;
    if (!get) { printf("FAIL no cuGetProcAddress_v2\n"); exit(1); }
#define X(symbol, base, version, args)                                                                                 \
    if (get(#base, (void **)&symbol, version, 0, &status) != SUCCESS || !symbol) {                                     \
        printf("FAIL cuGetProcAddress(%s, %d): status %d\n", #base, version, status);                                  \
        exit(1);                                                                                                       \
    }
    DRIVER_FUNCTIONS(X)
    EXTRA_FUNCTIONS(X)
#undef X
#endif
}

/* Whether the driver is the simulated one: tests and scripts set this for it. It has an error for arguments that NVIDIA's
 * driver follows into a crash: handles that are destroyed, null in place of a structure. */
static inline int is_simulated(void) { return getenv("VCUDA_SIM") != NULL; }

/* Checks. A program prints one line for each failed expectation and exits with 1 if there was one. */
static int failures;
static inline const char *code_name(CUresult code)
{
    const char *name = NULL;
    return cuGetErrorName(code, &name) == SUCCESS && name ? name : "?";
}
#define EXPECT(code, call)                                                                                             \
    do {                                                                                                               \
        CUresult got_ = (call);                                                                                        \
        if (got_ != (CUresult)(code)) {                                                                                \
            printf("FAIL %s:%d %s = %d (%s), expected %s\n", __FILE__, __LINE__, #call, got_, code_name(got_), #code); \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)
#define OK(call) EXPECT(SUCCESS, call)
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("FAIL %s:%d %s\n", __FILE__, __LINE__, #condition);                                                 \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)
static inline int finish(const char *name)
{
    printf("%s %s\n", failures ? "FAILED" : "passed", name);
    return failures ? 1 : 0;
}

/* PTX of our own: vcuda_spin_ns runs for its argument in nanoseconds, vcuda_work does a fixed amount of work. */
static const char SPIN_PTX[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 8 .u64 sink[1];\n"
    ".visible .entry vcuda_spin_ns(.param .u64 ns)\n{\n"
    "  .reg .u64 %t<4>;\n  .reg .pred %p;\n"
    "  ld.param.u64 %t0, [ns];\n  mov.u64 %t1, %globaltimer;\n"
    "again:\n  mov.u64 %t2, %globaltimer;\n  sub.u64 %t3, %t2, %t1;\n  setp.lt.u64 %p, %t3, %t0;\n"
    "  @%p bra again;\n  ret;\n}\n"
    ".visible .entry vcuda_work(.param .u64 iterations)\n{\n"
    "  .reg .u64 %t<4>;\n  .reg .pred %p;\n"
    "  ld.param.u64 %t0, [iterations];\n  mov.u64 %t1, 1;\n  mov.u64 %t2, 0;\n"
    "more:\n  setp.ge.u64 %p, %t2, %t0;\n  @%p bra done;\n"
    "  mad.lo.u64 %t1, %t1, 6364136223846793005, 1442695040888963407;\n  add.u64 %t2, %t2, 1;\n  bra more;\n"
    "done:\n  mov.u64 %t3, sink;\n  st.global.u64 [%t3], %t1;\n  ret;\n}\n";

static inline CUresult launch(CUfunction function, CUstream stream, uint64_t argument)
{
    void *params[] = {&argument};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Initialises, makes the primary context of device 0 current, loads SPIN_PTX. */
static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction spin, work;
static inline void setup(void)
{
    driver_open();
    CUresult code = cuInit(0);
    if (code == NO_DEVICE) {
        printf("skip: no device\n");
        exit(77);
    }
    OK(code);
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, SPIN_PTX));
    OK(cuModuleGetFunction(&spin, module, "vcuda_spin_ns"));
    OK(cuModuleGetFunction(&work, module, "vcuda_work"));
    if (failures) exit(finish("setup"));
}
#endif
