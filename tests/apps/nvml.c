/* What NVML says about memory: nvml [LIMIT]. Structures of both versions; the version field decides. NVML API reference:
 * nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo_v2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
typedef void *Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
static int failures;
#define CHECK(c) do { if (!(c)) { printf("FAIL %s:%d %s\n", __FILE__, __LINE__, #c); failures++; } } while (0)
#define GET(name, args) int (*name) args = (int (*) args)dlsym(lib, #name); if (!name) { printf("FAIL no %s\n", #name); return 1; }
int main(int argc, char **argv)
{
    unsigned long long limit = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) { printf("skip: %s\n", dlerror()); return 77; }
    GET(nvmlInit_v2, (void))
    GET(nvmlShutdown, (void))
    GET(nvmlDeviceGetCount_v2, (unsigned *))
    GET(nvmlDeviceGetHandleByIndex_v2, (unsigned, Device *))
    GET(nvmlDeviceGetMemoryInfo, (Device, Memory *))
    GET(nvmlDeviceGetMemoryInfo_v2, (Device, Memory2 *))
    unsigned count = 0;
    Device device = NULL;
    Memory m = {1, 1, 1};
    CHECK(nvmlDeviceGetCount_v2(&count) == 1 /* UNINITIALIZED */);
    CHECK(nvmlInit_v2() == 0);
    CHECK(nvmlDeviceGetCount_v2(&count) == 0 && count >= 1);
    CHECK(nvmlDeviceGetHandleByIndex_v2(count, &device) == 2 /* INVALID_ARGUMENT */);
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, &device) == 0);
    CHECK(nvmlDeviceGetMemoryInfo(device, NULL) == 2);
    CHECK(nvmlDeviceGetMemoryInfo(device, &m) == 0);
    CHECK(m.total == m.free + m.used);
    Memory2 m2 = {.version = (unsigned)sizeof(Memory2) | 2u << 24};
    CHECK(nvmlDeviceGetMemoryInfo_v2(device, &m2) == 0);
    CHECK(m2.total == m.total && m2.total == m2.reserved + m2.free + m2.used);
    Memory2 wrong = {.version = 12345};
    CHECK(nvmlDeviceGetMemoryInfo_v2(device, &wrong) != 0);
    if (limit) CHECK(m.total == limit);
    CHECK(nvmlDeviceGetMemoryInfo((Device)0x1234, &m) != 0);
    CHECK(nvmlShutdown() == 0);
    printf("%s nvml\n", failures ? "FAILED" : "passed");
    return failures != 0;
}
