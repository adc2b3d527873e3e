/* heaps limit MIB TIMES: asks so often for a heap of so many MiB, which has to be refused. heaps alloc MIB TIMES: allocates and frees so
 * often so many MiB, which has to succeed. Prints "started", and goes on when a line comes. */
#define EXTRA_FUNCTIONS(X) X(cuCtxSetLimit, cuCtxSetLimit, 3010, (unsigned, size_t))
#include "driver.h"
enum { HEAP = 2 };
int main(int argc, char **argv)
{
    const int raises = argc > 3 && !strcmp(argv[1], "limit");
    const size_t bytes = (size_t)atol(argv[2]) << 20;
    int refused = 0;
    setup();
    printf("started\n");
    fflush(stdout);
    CHECK(getchar() != EOF);
    for (int i = 0; i < atoi(argv[3]); i++) {
        CUdeviceptr address;
        if (raises) EXPECT(OUT_OF_MEMORY, cuCtxSetLimit(HEAP, bytes));
        else if (cuMemAlloc_v2(&address, bytes) != SUCCESS) refused++;
        else OK(cuMemFree_v2(address));
    }
    CHECK(!refused);
    return finish("heaps");
}
