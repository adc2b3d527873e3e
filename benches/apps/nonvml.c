/* An NVML that does nothing, beside the driver that does nothing: it lists no process. */
#include <string.h>
typedef int nvmlReturn_t;
nvmlReturn_t nvmlInit_v2(void) { return 0; }
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    (void)uuid;
    *device = (void *)1;
    return 0;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos)
{
    (void)device;
    (void)infos;
    *count = 0;
    return 0;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 80ull << 30, memory[1] = 79ull << 30, memory[2] = 1ull << 30;
    return 0;
}
nvmlReturn_t nvmlDeviceGetUUID(void *device, char *text, unsigned room)
{
    (void)device;
    (void)room;
    strcpy(text, "GPU-11111111-1111-1111-1111-111111111111");
    return 0;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    (void)device;
    rates[0] = rates[1] = 30;
    return 0;
}
nvmlReturn_t nvmlDeviceGetProcessUtilization(void *device, void *samples, unsigned *count, unsigned long long since)
{
    (void)device;
    (void)samples;
    (void)since;
    *count = 0;
    return 6;
}
