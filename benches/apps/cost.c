/* Calls one driver function, or a pair, many times: cost WHAT CALLS, where WHAT is a row of `ways` below. Or: cost crowd COUNT PROGRAM..., runs PROGRAM while
 * COUNT processes that have allocated memory wait. Prints nanoseconds per call (per pair for alloc):
 * the fastest of 20 parts, since anything slower was disturbed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuStreamSynchronize(void *);
extern int cuMemAlloc_v2(uintptr_t *, size_t), cuMemFree_v2(uintptr_t), cuMemGetInfo_v2(size_t *, size_t *);
extern int cuMemAllocManaged(uintptr_t *, size_t, unsigned), cuArrayCreate_v2(void **, const void *), cuArrayDestroy(void *);
extern int cuMemAllocAsync(uintptr_t *, size_t, void *), cuMemFreeAsync(uintptr_t, void *);
extern int cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long), cuMemRelease(unsigned long long);
extern int cuMemMap(uintptr_t, size_t, size_t, unsigned long long, unsigned long long), cuMemUnmap(uintptr_t, size_t);
extern int cuMemsetD8Async(uintptr_t, unsigned char, size_t, void *), cuMemcpyHtoDAsync_v2(uintptr_t, const void *, size_t, void *);
extern int cuModuleLoadData(void **, const void *), cuModuleUnload(void *);
struct handle { char of[64]; };
extern int cuIpcOpenMemHandle_v2(uintptr_t *, struct handle, unsigned), cuIpcCloseMemHandle(uintptr_t);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
/* Waits after each thousand: what was launched is then measured by this thread, and not at some time by the shim's own. */
static int launch(void)
{
    static unsigned launches;
    int waited = ++launches % 1000 ? 0 : cuStreamSynchronize(NULL);
    return waited | cuLaunchKernel((void *)0x1000, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}
static int alloc(void)
{
    uintptr_t p = 0;
    return cuMemAlloc_v2(&p, 4096) | cuMemFree_v2(p);
}
static int info(void)
{
    size_t a, b;
    return cuMemGetInfo_v2(&a, &b);
}
static int pool(void)
{
    uintptr_t p = 0;
    return cuMemAllocAsync(&p, 4096, NULL) | cuMemFreeAsync(p, NULL);
}
static int managed(void)
{
    uintptr_t p = 0;
    return cuMemAllocManaged(&p, 4096, 1) | cuMemFree_v2(p);
}
static int vmm(void)
{
    /* CUmemAllocationProp: pinned, no handle type, on device 0. */
    static const struct { int type, handles, location, id; void *of[2]; } properties = { 1, 0, 1, 0, { 0 } };
    unsigned long long h = 0;
    int bad = cuMemCreate(&h, 2 << 20, &properties, 0) | cuMemMap(0x10000000, 2 << 20, 0, h, 0);
    return bad | cuMemUnmap(0x10000000, 2 << 20) | cuMemRelease(h);
}
static int array(void)
{
    /* CUDA_ARRAY_DESCRIPTOR: 32 x 32, one channel of float. */
    static const struct { size_t width, height; int format; unsigned channels; } shape = { 32, 32, 32, 1 };
    void *a = NULL;
    return cuArrayCreate_v2(&a, &shape) | cuArrayDestroy(a);
}
static int ipc(void)
{
    static const struct handle handle = { { 1 } };
    uintptr_t p = 0;
    return cuIpcOpenMemHandle_v2(&p, handle, 1) | cuIpcCloseMemHandle(p);
}
/* With a pool in use. */
static int pooled_info(void)
{
    static uintptr_t p;
    return (p ? 0 : cuMemAllocAsync(&p, 4096, NULL)) | info();
}
static int launch_sync(void)
{
    return cuLaunchKernel((void *)0x1000, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) | cuStreamSynchronize(NULL);
}
/* With nothing to wait for. */
static int synchronize(void)
{
    static int launched;
    return (launched++ ? 0 : launch_sync()) | cuStreamSynchronize(NULL);
}
static int set(void) { return cuMemsetD8Async(0x700000000000, 0, 4096, NULL); }
static int copy(void) { return cuMemcpyHtoDAsync_v2(0x700000000000, &(char[64]){ 0 }, 64, NULL); }
static int module(void)
{
    void *m = NULL;
    return cuModuleLoadData(&m, "") | cuModuleUnload(m);
}
/* A function of NVML, as a program finds it. */
static void *nvml(const char *name)
{
    static void *library;
    if (!library) library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    return dlsym(library, name);
}
static int nvml_memory(void)
{
    static int (*of)(void *, void *);
    unsigned long long memory[3];
    if (!of) of = (int (*)(void *, void *))nvml("nvmlDeviceGetMemoryInfo");
    return of((void *)1, memory);
}
static int nvml_rates(void)
{
    static int (*of)(void *, void *);
    unsigned rates[2];
    if (!of) of = (int (*)(void *, void *))nvml("nvmlDeviceGetUtilizationRates");
    return of((void *)1, rates);
}
static const struct { const char *name; int (*of)(void); } ways[] = {
    { "launch", launch }, { "alloc", alloc }, { "info", info }, { "pool", pool }, { "pooled-info", pooled_info },
    { "managed", managed }, { "vmm", vmm }, { "array", array }, { "ipc", ipc }, { "launch-sync", launch_sync }, { "sync", synchronize },
    { "memset", set }, { "copy", copy }, { "module", module }, { "nvml-memory", nvml_memory }, { "nvml-rates", nvml_rates },
};
/* Each neighbour says when it has its memory, and ends with its parent. */
static int crowd(int count, char **argv)
{
    int ready[2], status;
    char byte;
    if (pipe(ready)) return 2;
    for (int i = 0; i < count; i++) {
        void *context;
        uintptr_t p;
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context) | cuMemAlloc_v2(&p, 4096)) _exit(3);
        if (write(ready[1], "", 1) == 1) pause();
        _exit(4);
    }
    close(ready[1]);
    for (int i = 0; i < count; i++)
        if (read(ready[0], &byte, 1) != 1) return 5;
    pid_t pid = fork();
    if (!pid) {
        execv(argv[0], argv);
        _exit(6);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status;
}
int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "crowd")) return crowd(atoi(argv[2]), argv + 3);
    int (*one)(void) = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(argv[1], ways[i].name)) one = ways[i].of;
    if (!one) return 64;
    long calls = argc > 2 ? atol(argv[2]) : 1000000, part = calls / 20;
    void *context;
    int bad = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
    double best = 1e18;
    for (int i = 0; i < 1000; i++) bad |= one(); /* first use: state, predictions */
    for (int i = 0; i < 20; i++) {
        double start = now();
        for (long n = 0; n < part; n++) bad |= one();
        double each = (now() - start) / part;
        if (each < best) best = each;
    }
    printf("%.2f\n", best);
    return bad;
}
