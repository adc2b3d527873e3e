/* The few functions of NVML that the programs of this folder ask. Source: NVML API reference. */
#ifndef VCUDA_TESTS_NVML_H
#define VCUDA_TESTS_NVML_H
#include "measure.h"

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } NvmlProcess;
typedef struct { unsigned long long total, free, used; } NvmlMemory;
#define NVML_FUNCTIONS(X)                                                                                              \
    X(nvmlInit_v2, (void))                                                                                             \
    X(nvmlShutdown, (void))                                                                                            \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **))                                                              \
    X(nvmlDeviceGetHandleByUUID, (const char *, void **))                                                              \
    X(nvmlDeviceGetUUID, (void *, char *, unsigned))                                                                   \
    X(nvmlDeviceGetMemoryInfo, (void *, NvmlMemory *))                                                                 \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, NvmlProcess *))                                    \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (void *, unsigned *, NvmlProcess *))
#define X(name, args) static int(*name) args;
NVML_FUNCTIONS(X)
#undef X
static void *nvml_device;

static inline void nvml_open(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) skip(dlerror());
#define X(name, args)                                                                                                  \
    if (!(name = (int(*) args)dlsym(library, #name))) skip("NVML has no " #name);
    NVML_FUNCTIONS(X)
#undef X
    int code = nvmlInit_v2();
    if (code) {
        printf("skip: nvmlInit_v2 = %d\n", code);
        exit(77);
    }
    code = nvmlDeviceGetHandleByIndex_v2(0, &nvml_device);
    if (code) {
        printf("FAIL nvmlDeviceGetHandleByIndex_v2 = %d\n", code);
        exit(1);
    }
}
/* Bytes in use on the GPU, by NVML; 0 if it does not tell. */
static inline unsigned long long gpu_used(void)
{
    NvmlMemory memory = {0};
    return nvmlDeviceGetMemoryInfo(nvml_device, &memory) ? 0 : memory.used;
}
/* What NVML says that this process has: bytes, or -1 if it is not listed. The largest of several entries; `entries` counts. */
static inline double own_used(int *entries, int *listed)
{
    static NvmlProcess all[512];
    unsigned count = 512;
    double bytes = -1;
    *entries = 0;
    *listed = 0;
    if (nvmlDeviceGetComputeRunningProcesses_v3(nvml_device, &count, all)) return -1;
    *listed = (int)count;
    for (unsigned i = 0; i < count; i++) {
        if (all[i].pid != (unsigned)getpid()) continue;
        (*entries)++;
        if ((double)all[i].used > bytes) bytes = (double)all[i].used;
    }
    return bytes;
}
#endif
