/* Managed memory under a quota: all of it is charged, whether or not anything is on the GPU: managed PIECE. Takes pieces until
 * one is refused. CUDA Driver API: cuMemAllocManaged. */
#include "driver.h"
int main(int argc, char **argv)
{
    size_t piece = strtoull(argv[1], NULL, 0), left = 0, total = 0, before, taken = 0;
    CUdeviceptr p[1024], first = 0x1234;
    int count = 0;
    (void)argc;
    setup();
    OK(cuMemGetInfo_v2(&before, &total));
    EXPECT(OUT_OF_MEMORY, cuMemAllocManaged(&first, before + 1, 1));
    CHECK(first == 0x1234);
    for (CUresult code; count < 1024; count++, taken += piece) {
        code = cuMemAllocManaged(&p[count], piece, 1 + count % 2 /* global, host */);
        if (code) {
            EXPECT(OUT_OF_MEMORY, code);
            break;
        }
        OK(cuMemGetInfo_v2(&left, &total));
        CHECK(before - left == taken + piece);
    }
    CHECK(count < 1024 && left < piece);
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&first, left + 1));
    while (count--) OK(cuMemFree_v2(p[count]));
    OK(cuMemGetInfo_v2(&left, &total));
    CHECK(left == before);
    return finish("managed");
}
