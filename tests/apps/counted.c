/* Allocates blocks of 64 MiB until the driver refuses one, and launches 30 kernels. Prints how many it got and the refusal. */
#include "driver.h"
int main(void)
{
    setup();
    int blocks = 0;
    CUresult refusal;
    CUdeviceptr place;
    while ((refusal = cuMemAlloc_v2(&place, 64 << 20)) == SUCCESS && blocks < 4096) blocks++;
    for (int i = 0; i < 30; i++) OK(launch(work, NULL, 100));
    OK(cuCtxSynchronize());
    printf("blocks %d refusal %d failures %d\n", blocks, refusal, failures);
    return failures != 0;
}
