/* Prints "total N" whenever the total memory it is told changes, and "alloc CODE" for an allocation of 1 MiB then. */
#include "driver.h"
#include <unistd.h>
int main(void)
{
    size_t seen = 0;
    setup();
    for (;; usleep(5000)) {
        size_t free_bytes, total;
        OK(cuMemGetInfo_v2(&free_bytes, &total));
        if (total == seen) continue;
        CUdeviceptr p;
        seen = total;
        printf("total %zu\nalloc %d\n", total, cuMemAlloc_v2(&p, 1 << 20));
        fflush(stdout);
    }
}
