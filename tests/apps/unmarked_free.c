/* Memory that a stream has yet to free is still taken, though nothing can be recorded behind the free: unmarked_free. For a
 * quota that holds 100 MiB and not 200, and a driver that makes no events. CUDA Driver API: cuMemFreeAsync. */
#include "driver.h"
#define SIZE (100ul << 20)
int main(void)
{
    CUstream s;
    CUdeviceptr p, q;
    setup();
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&p, SIZE));
    OK(launch(spin, s, 200000000));
    OK(cuMemFreeAsync(p, s));
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&q, SIZE));
    OK(cuStreamSynchronize(s));
    OK(cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&q, SIZE)); /* it went with its context */
    return finish("unmarked_free");
}
