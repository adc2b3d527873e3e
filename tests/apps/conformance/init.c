/* Initialisation, versions, devices. CUDA Driver API: "Initialization", "Version Management", "Device Management". */
#include "../driver.h"
int main(void)
{
    driver_open();
    int version = 0, count = -1;
    CUdevice dev = -1;
    size_t bytes = 0;
    /* cuDriverGetVersion and cuGetErrorName may be called before cuInit; everything else returns 3 until then. */
    OK(cuDriverGetVersion(&version));
    CHECK(version >= 11000);
    EXPECT(NOT_INITIALIZED, cuDeviceGetCount(&count));
    EXPECT(NOT_INITIALIZED, cuMemAlloc_v2(&(CUdeviceptr){0}, 1));
    EXPECT(INVALID_VALUE, cuInit(1)); /* flags must be 0 */
    CUresult code = cuInit(0);
    if (code == NO_DEVICE) {
        printf("skip: no device\n");
        return 77;
    }
    OK(code);
    OK(cuInit(0)); /* again is fine */
    OK(cuDeviceGetCount(&count));
    CHECK(count >= 1);
    EXPECT(INVALID_VALUE, cuDeviceGetCount(NULL));
    OK(cuDeviceGet(&dev, 0));
    EXPECT(INVALID_DEVICE, cuDeviceGet(&dev, count));
    EXPECT(INVALID_DEVICE, cuDeviceGet(&dev, -1));
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK(bytes > (64u << 20));
    EXPECT(INVALID_DEVICE, cuDeviceTotalMem_v2(&bytes, count + 7));
    char name[128];
    OK(cuDeviceGetName(name, sizeof name, 0));
    CHECK(name[0] != 0 && strlen(name) < sizeof name);
    CUuuid a, b;
    OK(cuDeviceGetUuid_v2(&a, 0));
    OK(cuDeviceGetUuid_v2(&b, 0));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    int value = 0;
    OK(cuDeviceGetAttribute(&value, 10 /* WARP_SIZE */, 0));
    CHECK(value == 32);
    OK(cuDeviceGetAttribute(&value, 16 /* MULTIPROCESSOR_COUNT */, 0));
    CHECK(value > 0);
    EXPECT(INVALID_VALUE, cuDeviceGetAttribute(&value, 100000, 0));
    const char *text = NULL;
    OK(cuGetErrorName(OUT_OF_MEMORY, &text));
    CHECK(text && strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    EXPECT(INVALID_VALUE, cuGetErrorName(123456, &text));
    /* No context is current yet: calls that need one say so. */
    EXPECT(INVALID_CONTEXT, cuMemAlloc_v2(&(CUdeviceptr){0}, 1));
    EXPECT(INVALID_CONTEXT, cuCtxGetDevice(&dev));
    return finish("init");
}
