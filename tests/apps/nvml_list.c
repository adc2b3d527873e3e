/* What NVML says that each process has on GPU 0, for each line of stdin: "listed PID:BYTES PID:BYTES ...". It makes no context
 * of its own. NVML API reference: nvmlDeviceGetComputeRunningProcesses. */
#include <dlfcn.h>
#include <stdio.h>
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Info;
int main(void)
{
    char line[64];
    void *device, *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) { printf("FAIL %s\n", dlerror()); return 1; }
    int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    int (*handle)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    int (*list)(void *, unsigned *, Info *) =
        (int (*)(void *, unsigned *, Info *))dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!init || !handle || !list || init() || handle(0, &device)) { printf("FAIL no NVML\n"); return 1; }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        Info infos[256];
        unsigned count = 256;
        int code = list(device, &count, infos);
        if (code) { printf("FAIL %d\n", code); return 1; }
        printf("listed");
        for (unsigned i = 0; i < count; i++) printf(" %u:%llu", infos[i].pid, infos[i].used);
        printf("\n");
    }
    return 0;
}
