/* A driver that does nothing: the smallest libcuda.so.1 with which the shim works, so that the cost of a hook can be
 * measured against the bare call. Kernels take no time, memory is a counter. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef int CUresult;
static uintptr_t context_storage, next_address = 0x700000000000, stream_storage, event_storage;
CUresult cuInit(unsigned flags) { (void)flags; return 0; }
CUresult cuDriverGetVersion(int *v) { *v = 12040; return 0; }
CUresult cuDeviceGetCount(int *n) { *n = 1; return 0; }
CUresult cuDeviceGet(int *d, int i) { *d = i; return i ? 101 : 0; }
/* That of NOOP_GPU ("GPU-" and hex digits with dashes), or all ones. */
CUresult cuDeviceGetUuid(unsigned char *u, int d)
{
    const char *named = getenv("NOOP_GPU"), *digits = "0123456789abcdef";
    int at = 0;
    (void)d;
    memset(u, 0x11, 16);
    for (const char *c = named ? named + 4 : ""; *c && at < 32; c++) {
        const char *digit = strchr(digits, *c);
        if (!digit) continue;
        u[at / 2] = (unsigned char)(at % 2 ? u[at / 2] | (digit - digits) : (digit - digits) << 4);
        at++;
    }
    return 0;
}
CUresult cuDeviceGetUuid_v2(unsigned char *u, int d) { return cuDeviceGetUuid(u, d); }
CUresult cuDeviceTotalMem_v2(size_t *b, int d) { (void)d; *b = 80ull << 30; return 0; }
CUresult cuDeviceGetAttribute(int *v, int a, int d) { (void)a; (void)d; *v = 1; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &context_storage; return 0; }
CUresult cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }
CUresult cuCtxSetCurrent(void *c) { (void)c; return 0; }
CUresult cuCtxGetCurrent(void **c) { *c = &context_storage; return 0; }
CUresult cuCtxPushCurrent_v2(void *c) { (void)c; return 0; }
CUresult cuCtxPopCurrent_v2(void **c) { if (c) *c = &context_storage; return 0; }
CUresult cuCtxGetDevice(int *d) { *d = 0; return 0; }
CUresult cuCtxSynchronize(void) { return 0; }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 79ull << 30; *t = 80ull << 30; return 0; }
CUresult cuMemAlloc_v2(uintptr_t *p, size_t n)
{
    *p = __atomic_fetch_add(&next_address, (n + 511) & ~(size_t)511, __ATOMIC_RELAXED);
    return 0;
}
CUresult cuMemFree_v2(uintptr_t p) { (void)p; return 0; }
CUresult cuMemAllocManaged(uintptr_t *p, size_t n, unsigned f) { (void)f; return cuMemAlloc_v2(p, n); }
CUresult cuMemGetAddressRange_v2(uintptr_t *b, size_t *n, uintptr_t p) { *b = p; *n = 4096; return 0; }
struct handle { char of[64]; };
CUresult cuIpcOpenMemHandle_v2(uintptr_t *p, struct handle h, unsigned f) { (void)h; (void)f; return cuMemAlloc_v2(p, 4096); }
CUresult cuIpcCloseMemHandle(uintptr_t p) { (void)p; return 0; }
CUresult cuMemCreate(unsigned long long *h, size_t n, const void *p, unsigned long long f) { (void)p; (void)f; return cuMemAlloc_v2((uintptr_t *)h, n); }
CUresult cuMemRelease(unsigned long long h) { (void)h; return 0; }
CUresult cuMemMap(uintptr_t p, size_t n, size_t o, unsigned long long h, unsigned long long f) { (void)p; (void)n; (void)o; (void)h; (void)f; return 0; }
CUresult cuMemUnmap(uintptr_t p, size_t n) { (void)p; (void)n; return 0; }
CUresult cuArray3DCreate_v2(void **a, const void *d) { (void)d; return cuMemAlloc_v2((uintptr_t *)a, 4096); }
CUresult cuArrayCreate_v2(void **a, const void *d) { return cuArray3DCreate_v2(a, d); }
CUresult cuArrayDestroy(void *a) { (void)a; return 0; }
CUresult cuArrayGetMemoryRequirements(size_t *n, void *a, int d) { (void)a; (void)d; n[0] = n[1] = 4096; return 0; }
/* A pool: pieces of 4 KiB, cut from what it holds, which grows by 32 MiB and never shrinks. */
static uint64_t used, held, threshold = UINT64_MAX;
CUresult cuDeviceGetMemPool(void **p, int d) { (void)d; *p = &held; return 0; }
CUresult cuDeviceGetDefaultMemPool(void **p, int d) { return cuDeviceGetMemPool(p, d); }
CUresult cuMemPoolGetAttribute(void *p, int a, uint64_t *v) { (void)p; *v = a == 4 ? threshold : a == 5 ? held : used; return 0; }
CUresult cuMemPoolSetAttribute(void *p, int a, uint64_t *v) { (void)p; if (a == 4) threshold = *v; return 0; }
CUresult cuMemPoolTrimTo(void *p, size_t n) { (void)p; (void)n; return 0; }
CUresult cuMemAllocAsync(uintptr_t *p, size_t n, void *s)
{
    (void)s;
    if (__atomic_add_fetch(&used, 4096, __ATOMIC_RELAXED) > held) held += 32 << 20;
    return cuMemAlloc_v2(p, n);
}
CUresult cuMemAllocFromPoolAsync(uintptr_t *p, size_t n, void *pool, void *s) { (void)pool; return cuMemAllocAsync(p, n, s); }
CUresult cuMemFreeAsync(uintptr_t p, void *s) { (void)p; (void)s; __atomic_sub_fetch(&used, 4096, __ATOMIC_RELAXED); return 0; }
CUresult cuStreamSynchronize(void *s) { (void)s; return 0; }
CUresult cuStreamGetCtx(void *s, void **c) { (void)s; *c = &context_storage; return 0; }
CUresult cuPointerGetAttribute(void *v, int a, uintptr_t p) { (void)a; (void)p; *(int *)v = 0; return 0; }
CUresult cuStreamCreate(void **s, unsigned f) { (void)f; *s = &stream_storage; return 0; }
CUresult cuStreamIsCapturing(void *s, int *c) { (void)s; *c = 0; return 0; }
CUresult cuThreadExchangeStreamCaptureMode(int *m) { (void)m; return 0; }
CUresult cuEventCreate(void **e, unsigned f) { (void)f; *e = (void *)(++event_storage * 16); return 0; }
CUresult cuEventDestroy_v2(void *e) { (void)e; return 0; }
CUresult cuEventRecord(void *e, void *s) { (void)e; (void)s; return 0; }
CUresult cuEventQuery(void *e) { (void)e; return 0; }
CUresult cuEventSynchronize(void *e) { (void)e; return 0; }
CUresult cuEventElapsedTime(float *ms, void *a, void *b) { (void)a; (void)b; *ms = 0.0003f; return 0; }
CUresult cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                        void *s, void **p, void **x)
{
    (void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)h; (void)s; (void)p; (void)x;
    return 0;
}
CUresult cuMemsetD8Async(uintptr_t p, unsigned char v, size_t n, void *s) { (void)p; (void)v; (void)n; (void)s; return 0; }
CUresult cuMemcpyHtoDAsync_v2(uintptr_t p, const void *h, size_t n, void *s) { (void)p; (void)h; (void)n; (void)s; return 0; }
CUresult cuModuleLoadData(void **m, const void *image) { (void)image; return cuMemAlloc_v2((uintptr_t *)m, 4096); }
CUresult cuModuleUnload(void *m) { (void)m; return 0; }
CUresult cuGetErrorName(CUresult e, const char **s) { (void)e; *s = "?"; return 0; }
