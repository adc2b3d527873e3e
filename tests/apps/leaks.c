/* Every kind of memory in six threads at once, freed in every order and by every way; contexts that end with what lives
 * in them. After each step cuMemGetInfo is back where it began, also where the driver refuses now and then. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (CUmemHandle *, void *))
#include "driver.h"
#include <pthread.h>
#include <unistd.h>
static size_t free_bytes(void)
{
    size_t left = 0, total;
    OK(cuMemGetInfo_v2(&left, &total));
    return left;
}
static void balanced(const char *step, size_t before)
{
    size_t after = 0;
    for (int i = 0; i < 100 && (after = free_bytes()) != before; i++) usleep(20000);
    if (after != before) {
        printf("FAIL %s leaves %lld bytes\n", step, (long long)before - (long long)after);
        failures++;
    }
}
static void virtual_memory(unsigned seed)
{
    AllocationProp pinned = {.type = 1, .location = {1, 0}};
    size_t bytes = 2 << 20;
    CUmemHandle handle, again;
    CUdeviceptr at;
    if (cuMemCreate(&handle, bytes, &pinned, 0)) return;
    if (cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0)) {
        OK(cuMemRelease(handle));
        return;
    }
    OK(cuMemMap(at, bytes, 0, handle, 0));
    OK(cuMemMap(at + bytes, bytes, 0, handle, 0));
    if (seed % 3 == 0) {
        OK(cuMemRelease(handle));
        OK(cuMemRetainAllocationHandle(&again, (void *)at));
        OK(cuMemUnmap(at, 2 * bytes));
        OK(cuMemRelease(again));
    } else if (seed % 3 == 1) {
        OK(cuMemUnmap(at, bytes));
        OK(cuMemUnmap(at + bytes, bytes));
        OK(cuMemRelease(handle));
    } else {
        OK(cuMemRelease(handle));
        OK(cuMemUnmap(at, bytes));
        OK(cuMemUnmap(at + bytes, bytes));
        OK(cuMemUnmap(at, bytes)); /* nothing is mapped there: no error on an H200 */
    }
    OK(cuMemAddressFree(at, 2 * bytes));
}
static void *churn(void *number)
{
    unsigned seed = (unsigned)(size_t)number * 77 + 1;
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    for (int i = 0; i < 400; i++) {
        seed = seed * 1103515245 + 12345;
        size_t n = (seed >> 8) % (4 << 20) + 1, pitch;
        CUdeviceptr p;
        CUarray array;
        CUmipmappedArray levels;
        ArrayDescriptor flat = {n % 2000 + 1, n % 50, 0x20, 4};
        Array3DDescriptor deep = {n % 500 + 1, n % 50 + 1, n % 5, 0x20, 4, 0};
        switch ((seed >> 4) % 8) {
        case 0: if (!cuMemAlloc_v2(&p, n)) OK(cuMemFree_v2(p)); break;
        case 1: if (!cuMemAllocPitch_v2(&p, &pitch, n % 5000 + 1, n % 300 + 1, 4)) OK(cuMemFree_v2(p)); break;
        case 2: if (!cuMemAllocManaged(&p, n, 1)) OK(cuMemFree_v2(p)); break;
        case 3: if (!cuMemAllocAsync(&p, n, stream)) OK(cuMemFreeAsync(p, stream)); break;
        case 4: virtual_memory(seed >> 12); break;
        case 5: if (!cuArrayCreate_v2(&array, &flat)) OK(cuArrayDestroy(array)); break;
        case 6: if (!cuMipmappedArrayCreate(&levels, &deep, 1 + n % 4)) OK(cuMipmappedArrayDestroy(levels)); break;
        case 7: if (!cuMemAlloc_v2(&p, n)) OK(cuMemFreeAsync(p, stream)); break;
        }
    }
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}
static CUdeviceptr held[100];
/* A thread without a context may free. */
static void *free_held(void *unused)
{
    for (int i = 0; i < 100; i++) OK(cuMemFree_v2(held[i]));
    return unused;
}
int main(void)
{
    pthread_t threads[6];
    driver_open();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    size_t before = free_bytes();
    for (size_t i = 0; i < 6; i++) pthread_create(&threads[i], NULL, churn, (void *)i);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    balanced("six threads", before);
    for (int i = 0; i < 100; i++)
        while (cuMemAlloc_v2(&held[i], 1000 + i)) {}
    pthread_create(threads, NULL, free_held, NULL);
    pthread_join(threads[0], NULL);
    balanced("free in another thread", before);
    CUcontext other;
    CUdeviceptr lost;
    OK(cuCtxCreate_v2(&other, 0, 0));
    for (int i = 0; i < 20; i++)
        while (cuMemAlloc_v2(&held[i], 1 << 20)) {}
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 10; i++) OK(cuMemFree_v2(held[i]));
    OK(cuCtxDestroy_v2(other));
    balanced("a context with live memory", before);
    for (int i = 10; i < 20; i++) EXPECT(INVALID_VALUE, cuMemFree_v2(held[i]));
    OK(cuCtxCreate_v2(&other, 0, 0));
    while (cuMemAlloc_v2(&lost, 1 << 20)) {}
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(context));
    balanced("the current context", before);
    while (cuMemAlloc_v2(&lost, 1 << 20)) {}
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    balanced("reset", before);
    return finish("leaks");
}
