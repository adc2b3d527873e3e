/* Allocates BYTES on device 0 of this process and prints its UUID: where BYTES. "none" if there is no device. */
#include "driver.h"
#include <unistd.h>
int main(int argc, char **argv)
{
    driver_open();
    CUresult code = cuInit(0);
    int count = 0;
    if (code == NO_DEVICE || (code == SUCCESS && cuDeviceGetCount(&count) == SUCCESS && count == 0)) {
        printf("none\n");
        return 0;
    }
    OK(code);
    CUuuid u;
    CUdeviceptr p;
    OK(cuDeviceGetUuid_v2(&u, 0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    CUresult allocated = cuMemAlloc_v2(&p, strtoull(argv[1], NULL, 0));
    printf("GPU-");
    for (int i = 0; i < 16; i++) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u.bytes[i]);
    printf(" %d of %d\n", allocated, count);
    fflush(stdout);
    for (;;) pause();
}
