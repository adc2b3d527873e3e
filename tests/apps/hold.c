/* Allocates and waits to be told or killed: hold BYTES... Prints "holding TOTAL", then waits for the end of stdin or
 * a signal. What is refused is counted and printed. */
#include "driver.h"
#include <unistd.h>
int main(int argc, char **argv)
{
    setup();
    unsigned long long total = 0;
    int denied = 0;
    for (int i = 1; i < argc; i++) {
        CUdeviceptr p;
        size_t bytes = strtoull(argv[i], NULL, 0);
        CUresult code = cuMemAlloc_v2(&p, bytes);
        if (code == SUCCESS) total += bytes;
        else if (code == OUT_OF_MEMORY) denied++;
        else EXPECT(SUCCESS, code);
    }
    printf("holding %llu denied %d\n", total, denied);
    fflush(stdout);
    for (;;) pause();
}
