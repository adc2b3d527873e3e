/* A process whose GPU state others move: moved HOW, `plain`, `managed` or `busy`. Prints "ready", and for each line on stdin,
 * after calls that wait while it is locked, "works", or "damaged" if its memory is not as before. */
#include "driver.h"
#include <unistd.h>
#define BYTES (8u << 20)
int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "plain";
    static unsigned host[BYTES / 4];
    CUdeviceptr data, managed, more;
    CUstream stream;
    char line[16];
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&data, BYTES));
    OK(cuMemsetD32_v2(data, 0x5eed, BYTES / 4));
    OK(cuCtxSynchronize());
    if (!strcmp(how, "managed")) OK(cuMemAllocManaged(&managed, BYTES, 1));
    if (!strcmp(how, "busy")) OK(launch(spin, stream, 3000000000));
    if (failures) return 1;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int is_intact = 1;
        OK(cuMemAlloc_v2(&more, BYTES));
        OK(cuMemFree_v2(more));
        OK(cuMemcpyDtoH_v2(host, data, BYTES));
        for (size_t i = 0; i < BYTES / 4; i++) is_intact &= host[i] == 0x5eed;
        printf("%s\n", is_intact && !failures ? "works" : "damaged");
        fflush(stdout);
    }
    return failures != 0;
}
