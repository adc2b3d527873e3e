/* A tenant's view of its memory quota: quota LIMIT_BYTES. Prints "passed quota" if everything is as documented. */
#include "driver.h"
int main(int argc, char **argv)
{
    size_t limit = strtoull(argv[1], NULL, 0), free0, free1, total, bytes;
    setup();
    (void)argc;
    /* The quota looks like the whole GPU. */
    OK(cuDeviceTotalMem_v2(&bytes, device));
    CHECK(bytes == limit);
    OK(cuMemGetInfo_v2(&free0, &total));
    CHECK(total == limit && free0 <= limit && free0 > 0);
    /* One byte too many is refused, the out-parameter untouched, and the context stays usable. */
    CUdeviceptr p = 0x1234, q = 0;
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&p, free0 + 1));
    CHECK(p == 0x1234);
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&p, limit));
    OK(cuMemAlloc_v2(&p, free0)); /* to the byte */
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 == 0 && total == limit);
    q = 0x5678;
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&q, 1));
    size_t pitch = 77;
    EXPECT(OUT_OF_MEMORY, cuMemAllocPitch_v2(&q, &pitch, 1 << 20, 64, 4));
    CHECK(pitch == 77);
    EXPECT(OUT_OF_MEMORY, cuMemAllocManaged(&q, 64 << 20, 1));
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync(&q, 64 << 20, NULL));
    AllocationProp prop = {.type = 1, .location = {1, device}};
    CUmemHandle handle = 0x9999;
    EXPECT(OUT_OF_MEMORY, cuMemCreate(&handle, 64 << 20, &prop, 0));
    CHECK(handle == 0x9999);
    ArrayDescriptor d = {4096, 4096, 0x20, 4};
    CUarray array = (CUarray)0x42;
    EXPECT(OUT_OF_MEMORY, cuArrayCreate_v2(&array, &d));
    CHECK(array == (CUarray)0x42);
    Array3DDescriptor d3 = {1024, 1024, 16, 0x20, 4, 0};
    EXPECT(OUT_OF_MEMORY, cuArray3DCreate_v2(&array, &d3));
    CUmipmappedArray mip = NULL;
    EXPECT(OUT_OF_MEMORY, cuMipmappedArrayCreate(&mip, &(Array3DDescriptor){2048, 2048, 0, 0x20, 4, 0}, 4));
    CHECK(q == 0x5678);
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&q, SIZE_MAX)); /* no wrap */
    EXPECT(INVALID_VALUE, cuMemAlloc_v2(&q, 0));        /* the driver's answer, not ours */
    EXPECT(INVALID_VALUE, cuMemAlloc_v2(NULL, 16));
    /* Giving it back gives it back, once. */
    OK(cuMemFree_v2(p));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 == free0);
    EXPECT(INVALID_VALUE, cuMemFree_v2(p));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 == free0);
    /* Every kind is charged and credited. */
    OK(cuMemAllocPitch_v2(&q, &pitch, 1000, 1000, 4));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 - free1 == pitch * 1000);
    OK(cuMemFree_v2(q));
    OK(cuMemAllocManaged(&q, 10 << 20, 1));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 - free1 == (10 << 20));
    OK(cuMemFree_v2(q));
    OK(cuMemCreate(&handle, 64 << 20, &prop, 0));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 - free1 == (64 << 20));
    OK(cuMemRelease(handle));
    OK(cuArrayCreate_v2(&array, &d));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 - free1 >= (256u << 20) && free0 - free1 <= (260u << 20));
    OK(cuArrayDestroy(array));
    OK(cuMemAllocAsync(&q, 10 << 20, NULL));
    OK(cuMemFreeAsync(q, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 == free0);
    return finish("quota");
}
