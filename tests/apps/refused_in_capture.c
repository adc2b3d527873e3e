/* Allocations beyond any GPU's memory while a stream is captured, in each mode of the capture and by its own or another thread:
 * prints the answer to each, and to the end of the capture. CUDA Driver API: "Stream Management". */
#include "driver.h"
#include <pthread.h>
#define BEYOND ((size_t)1 << 40)
static CUstream beside;
static CUmemoryPool pool;
static CUresult linear(void)
{
    CUdeviceptr p;
    return cuMemAlloc_v2(&p, BEYOND);
}
static CUresult managed(void)
{
    CUdeviceptr p;
    return cuMemAllocManaged(&p, BEYOND, 1);
}
static CUresult pitched(void)
{
    CUdeviceptr p;
    size_t pitch;
    return cuMemAllocPitch_v2(&p, &pitch, 1 << 20, 1 << 20, 16);
}
static CUresult array(void)
{
    CUarray a;
    ArrayDescriptor shape = {1 << 20, 1 << 20, 0x20 /* CU_AD_FORMAT_FLOAT */, 1};
    return cuArrayCreate_v2(&a, &shape);
}
static CUresult mipmap(void)
{
    CUmipmappedArray m;
    Array3DDescriptor shape = {1 << 20, 1 << 20, 0, 0x20, 1, 0};
    return cuMipmappedArrayCreate(&m, &shape, 1);
}
static CUresult physical(void)
{
    static const AllocationProp HERE = {.type = 1, .location = {1, 0}};
    CUmemHandle handle;
    return cuMemCreate(&handle, BEYOND, &HERE, 0);
}
/* In a stream that is not captured. */
static CUresult ordered(void)
{
    CUdeviceptr p;
    return cuMemAllocAsync(&p, BEYOND, beside);
}
static CUresult from_pool(void)
{
    CUdeviceptr p;
    return cuMemAllocFromPoolAsync(&p, BEYOND, pool, beside);
}
static CUresult (*const kinds[])(void) = {linear, managed, pitched, array, mipmap, physical, ordered, from_pool};
enum { KINDS = sizeof kinds / sizeof *kinds };
static CUresult (*asked)(void);
static void *ask(void *unused)
{
    OK(cuCtxSetCurrent(context));
    return (void *)(long)asked();
}
int main(void)
{
    setup();
    CUstream s;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&beside, STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    for (int kind = 0; kind < KINDS; kind++)
        for (int mode = CAPTURE_GLOBAL; mode <= CAPTURE_RELAXED; mode++)
            for (int other = 0; other < 2; other++) {
                CUgraph graph = NULL;
                pthread_t thread;
                void *answer;
                asked = kinds[kind];
                OK(cuStreamBeginCapture_v2(s, mode));
                if (other) {
                    OK(pthread_create(&thread, NULL, ask, NULL));
                    OK(pthread_join(thread, &answer));
                } else answer = ask(NULL);
                printf("kind %d mode %d other thread %d: %ld", kind, mode, other, (long)answer);
                printf(", end %d\n", cuStreamEndCapture(s, &graph));
                if (graph) OK(cuGraphDestroy(graph));
            }
    return finish("refused_in_capture");
}
