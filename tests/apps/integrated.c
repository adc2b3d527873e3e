/* What the driver and NVML say of the memory of device 0, on one line: whether it is integrated (CU_DEVICE_ATTRIBUTE_INTEGRATED),
 * totals of cuDeviceTotalMem and cuMemGetInfo, then status and total of nvmlDeviceGetMemoryInfo and _v2. */
#include "driver.h"
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int main(void)
{
    driver_open();
    int integrated = -1;
    size_t device = 0, free = 0, total = 0;
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&integrated, 18, 0));
    OK(cuDeviceTotalMem_v2(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetInfo_v2(&free, &total));
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *handle = NULL;
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*info)(void *, Memory *) = (int (*)(void *, Memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    int (*info_v2)(void *, Memory2 *) = (int (*)(void *, Memory2 *))dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
    Memory one = {0};
    Memory2 two = {.version = (unsigned)sizeof(Memory2) | 2u << 24}, wrong = {.version = 12345};
    OK(init());
    OK(by_index(0, &handle));
    int first = info(handle, &one), second = info_v2(handle, &two);
    /* Nonsense stays an error. */
    if (info(handle, NULL) == 0 || info_v2(handle, &wrong) == 0) return 1;
    if (first == 0 && (one.free + one.used != one.total || two.reserved + two.free + two.used != two.total)) return 1;
    printf("%d %zu %zu %d %llu %d %llu\n", integrated, device, total, first, one.total, second, two.total);
    return 0;
}
