/* Fills the quota: fill BYTES. After a line on stdin allocates BYTES at a time until it is refused, prints
 * "filled TOTAL" and holds everything until the next line. */
#include "driver.h"
int main(int argc, char **argv)
{
    size_t bytes = strtoull(argv[1], NULL, 0), total = 0;
    setup();
    printf("started\n");
    fflush(stdout);
    getchar();
    CUresult code;
    for (CUdeviceptr p; (code = cuMemAlloc_v2(&p, bytes)) == SUCCESS; total += bytes) {}
    EXPECT(OUT_OF_MEMORY, code);
    printf("filled %zu\n", total);
    fflush(stdout);
    getchar();
    return failures != 0;
}
