/* Takes memory in blocks until it is refused, and holds it: many at once race for what is left of a quota.
 *   fill BLOCK_MIB SECONDS
 * Prints "context 1", then "allocated" and "first_cuda_ms", the time that cuInit and the context took. docs/hardware.md, "allocation unit". */
#include "measure.h"

int main(int argc, char **argv)
{
    if (argc < 3) return 64;
    double begin = now_us(), end = begin + atof(argv[2]) * 1e6;
    unsigned long long block = strtoull(argv[1], NULL, 0) * MIB, count = 0;
    CUdeviceptr at;
    setup();
    report("first_cuda_ms", (now_us() - begin) / 1e3, "ms");
    CUresult code;
    while ((code = cuMemAlloc_v2(&at, block)) == SUCCESS) count++;
    EXPECT(OUT_OF_MEMORY, code);
    report("allocated", (double)(count * block), "bytes");
    while (now_us() < end) usleep(10000);
    return failures != 0;
}
