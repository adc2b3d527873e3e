/* The start of a small GPU program: a context, an allocation, and the end. With an argument it asks NVML for the processes
 * of its GPU too, as the shim does by itself. */
#include <dlfcn.h>
#include <stdint.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(uintptr_t *, unsigned long);
static int ask_nvml(void)
{
    static char infos[24 * 1024];
    unsigned count = 1024;
    void *device, *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (!nvml) return 1;
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*by_uuid)(const char *, void **) = (int (*)(const char *, void **))dlsym(nvml, "nvmlDeviceGetHandleByUUID");
    int (*list)(void *, unsigned *, void *) =
        (int (*)(void *, unsigned *, void *))dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    return init() || by_uuid("GPU-11111111-1111-1111-1111-111111111111", &device) || list(device, &count, infos);
}
int main(int argc, char **argv)
{
    void *context;
    uintptr_t p;
    (void)argv;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, 1 << 20)
        || (argc > 1 && ask_nvml());
}
