/* How long NVML takes to start and to answer. docs/hardware.md, "start of NVML". */
#include "nvml.h"

int main(void)
{
    double begin = now_us();
    nvml_open();
    report("nvml_first_init", (now_us() - begin) / 1e3, "ms");
    TIME_EACH("nvml_again_init", 20, nvmlInit_v2(); nvmlShutdown());
    static NvmlProcess all[512];
    unsigned count;
    char uuid[96];
    void *handle;
    NvmlMemory memory;
    TIME_EACH("nvml_processes", 100, count = 512; nvmlDeviceGetComputeRunningProcesses_v3(nvml_device, &count, all));
    TIME_EACH("nvml_memory", 100, nvmlDeviceGetMemoryInfo(nvml_device, &memory));
    nvmlDeviceGetUUID(nvml_device, uuid, sizeof uuid);
    TIME_EACH("nvml_handle_by_uuid", 100, nvmlDeviceGetHandleByUUID(uuid, &handle));
    nvmlShutdown();
    TIME_EACH("nvml_new_init", 5, nvmlInit_v2(); nvmlShutdown());
    return 0;
}
