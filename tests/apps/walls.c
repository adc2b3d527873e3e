/* The driver's memory limits of cgroups, from NVML and CUDA,: walls COMMAND... Each command prints a line.
 *   gpu INDEX                      the GPU of what follows, at first 0: no line
 *   set PATH SOFT HARD  get PATH   nvmlDeviceSet/GetMemoryLimits_v1: "set CODE", "get CODE SOFT HARD USED"
 *   shown                          cuMemGetInfo, cuDeviceTotalMem, NVML: "shown FREE TOTAL TOTAL2 FREE_V1 TOTAL_V1 FREE_V2 TOTAL_V2"
 *   take BYTES  managed BYTES      an allocation, kept: "take CODE"
 *   fill                           the bytes that single allocations can take, down to one byte: "fill BYTES"
 *   wait                           waits for a line on stdin: "wait" */
#include "driver.h"
typedef struct { const char *path; unsigned long long soft, hard, used; } Limits;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
static void *nvml(const char *name)
{
    static void *library;
    if (!library) library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    return dlsym(library, name);
}
static unsigned gpu;
static void *handle(void)
{
    static int started;
    void *found = NULL;
    if (!started) OK(((int (*)(void))nvml("nvmlInit_v2"))());
    started = 1;
    OK(((int (*)(unsigned, void **))nvml("nvmlDeviceGetHandleByIndex_v2"))(gpu, &found));
    return found;
}
static void cuda(void)
{
    if (context) return;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, gpu));
    OK(cuCtxSetCurrent(context));
}
static void shown(void)
{
    size_t free = 0, total = 0, device = 0;
    Memory one = {0};
    Memory2 two = {.version = (unsigned)sizeof(Memory2) | 2u << 24};
    cuda();
    OK(cuMemGetInfo_v2(&free, &total));
    OK(cuDeviceTotalMem_v2(&device, gpu));
    OK(((int (*)(void *, Memory *))nvml("nvmlDeviceGetMemoryInfo"))(handle(), &one));
    OK(((int (*)(void *, Memory2 *))nvml("nvmlDeviceGetMemoryInfo_v2"))(handle(), &two));
    printf("shown %zu %zu %zu %llu %llu %llu %llu\n", free, total, device, one.free, one.total, two.free, two.total);
}
static void fill(void)
{
    unsigned long long taken = 0;
    CUdeviceptr at;
    cuda();
    for (unsigned long long piece = 1ull << 40; piece; piece /= 2)
        while (cuMemAlloc_v2(&at, piece) == SUCCESS) taken += piece;
    printf("fill %llu\n", taken);
}
int main(int argc, char **argv)
{
    char line[64];
    CUdeviceptr at;
    driver_open();
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (char **next = argv + 1; *next; next++) {
        if (!strcmp(*next, "gpu")) {
            gpu = (unsigned)strtoul(*++next, NULL, 0);
        } else if (!strcmp(*next, "set")) {
            Limits limits = {next[1], strtoull(next[2], NULL, 0), strtoull(next[3], NULL, 0), 0};
            printf("set %d\n", ((int (*)(void *, Limits *))nvml("nvmlDeviceSetMemoryLimits_v1"))(handle(), &limits));
            next += 3;
        } else if (!strcmp(*next, "get")) {
            Limits l = {.path = *++next};
            int code = ((int (*)(void *, Limits *))nvml("nvmlDeviceGetMemoryLimits_v1"))(handle(), &l);
            printf("get %d %llu %llu %llu\n", code, l.soft, l.hard, l.used);
        } else if (!strcmp(*next, "shown")) {
            shown();
        } else if (!strcmp(*next, "take")) {
            cuda();
            printf("take %d\n", cuMemAlloc_v2(&at, strtoull(*++next, NULL, 0)));
        } else if (!strcmp(*next, "managed")) {
            cuda();
            printf("managed %d\n", cuMemAllocManaged(&at, strtoull(*++next, NULL, 0), 1));
        } else if (!strcmp(*next, "fill")) {
            fill();
        } else if (!strcmp(*next, "wait")) {
            printf("wait\n");
            if (!fgets(line, sizeof line, stdin)) return 1;
        } else return 2;
    }
    return 0;
}
