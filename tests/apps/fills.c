/* Fills memory, keeps the GPU busy for ever, and looks at the memory from time to time: fills MIB KERNEL_NS
 * Ends if the memory is not as it was written, or if a call fails. */
#include "driver.h"
#include <unistd.h>
#define LOOKED_AT (64u << 10)
enum { LAUNCHES = 50 };
int main(int argc, char **argv)
{
    static unsigned host[LOOKED_AT / 4];
    size_t bytes = strtoull(argv[1], NULL, 0) << 20;
    uint64_t ns = strtoull(argv[2], NULL, 0);
    unsigned pattern = (unsigned)bytes ^ 0x5eed;
    CUdeviceptr data;
    setup();
    /* The manager offers room once it has seen the tenant, some 10 ms after its start. A real driver takes longer to start. */
    usleep(300000);
    OK(cuMemAlloc_v2(&data, bytes));
    OK(cuMemsetD32_v2(data, pattern, bytes / 4));
    for (size_t round = 0; !failures; round++) {
        for (int i = 0; i < LAUNCHES; i++) OK(launch(spin, NULL, ns));
        /* Another part of it each time. */
        OK(cuMemcpyDtoH_v2(host, data + round * LOOKED_AT % bytes, LOOKED_AT));
        for (size_t i = 0; i < LOOKED_AT / 4; i++) CHECK(host[i] == pattern);
    }
    return 1;
}
