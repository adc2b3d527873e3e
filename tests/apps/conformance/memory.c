/* Linear memory and copies. CUDA Driver API: "Memory Management". */
#include "../driver.h"
#include "answers.h"
int main(void)
{
    setup();
    CUdeviceptr p = 0, q = 0, base = 0;
    size_t size = 0, free0, free1, total;
    OK(cuMemGetInfo_v2(&free0, &total));
    CHECK(free0 <= total && total > 0);
    EXPECT(INVALID_VALUE, cuMemAlloc_v2(&p, 0));
    EXPECT(INVALID_VALUE, cuMemAlloc_v2(NULL, 16));
    p = 0xdead;
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&p, (size_t)1 << 46));
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&p, SIZE_MAX));
    OK(cuMemAlloc_v2(&p, 64 << 20));
    CHECK(p % 256 == 0); /* "suitably aligned for any kind of variable"; 256 is what textures ask for */
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 - free1 >= (64u << 20) && free0 - free1 <= (66u << 20));
    OK(cuMemGetAddressRange_v2(&base, &size, p + 1000));
    CHECK(base == p && size == (64 << 20));
    CHECK(cuMemGetAddressRange_v2(&base, &size, 4096) != SUCCESS);
    /* Contents are real. */
    unsigned host[1024], back[1024];
    for (unsigned i = 0; i < 1024; i++) host[i] = i * 2654435761u;
    OK(cuMemcpyHtoD_v2(p, host, sizeof host));
    OK(cuMemAlloc_v2(&q, sizeof host));
    OK(cuMemcpyDtoD_v2(q, p, sizeof host));
    OK(cuMemcpyDtoH_v2(back, q, sizeof host));
    CHECK(memcmp(host, back, sizeof host) == 0);
    OK(cuMemsetD8_v2(q, 0x5a, 16));
    OK(cuMemsetD16_v2(q + 16, 0x1234, 8));
    OK(cuMemsetD32_v2(q + 32, 0xcafef00d, 4));
    OK(cuMemcpyDtoH_v2(back, q, 48));
    CHECK(((unsigned char *)back)[15] == 0x5a && ((unsigned short *)back)[15] == 0x1234 && back[11] == 0xcafef00d);
    OK(cuMemcpyDtoH_v2(back, q + 48, 4));
    CHECK(back[0] == host[12]);
    EXPECT(INVALID_VALUE, cuMemcpyHtoD_v2(q, host, sizeof host + 1)); /* beyond the allocation */
    EXPECT(INVALID_VALUE, cuMemsetD32_v2(q + 2, 1, 1));               /* misaligned */
    /* Pitch: at least the width, rows do not overlap; 2-D copies honour it. */
    CUdeviceptr r = 0, refused = 0xdead;
    size_t pitch = 0, no_pitch = 0xdead;
    OK(cuMemAllocPitch_v2(&r, &pitch, 1000, 10, 4));
    CHECK(pitch >= 1000 && pitch % 32 == 0);
    EXPECT(INVALID_VALUE, cuMemAllocPitch_v2(&refused, &no_pitch, 1000, 10, 3)); /* element size is 4, 8 or 16 */
    tell("pitch_refused_address", refused, "address"); /* an H200's driver writes to one of them or to both */
    tell("pitch_refused_pitch", no_pitch, "bytes");
    OK(cuMemsetD2D8_v2(r, pitch, 7, 1000, 10));
    unsigned char rows[10][1000];
    Copy2D copy = {.srcMemoryType = MEMORY_DEVICE, .srcDevice = r, .srcPitch = pitch, .dstMemoryType = MEMORY_HOST,
                   .dstHost = rows, .dstPitch = 1000, .WidthInBytes = 1000, .Height = 10};
    OK(cuMemcpy2D_v2(&copy));
    int sevens = 0;
    for (int y = 0; y < 10; y++)
        for (int x = 0; x < 1000; x++) sevens += rows[y][x] == 7;
    CHECK(sevens == 10000);
    OK(cuMemFree_v2(r));
    /* Managed memory is visible to the host at the same address. */
    CUdeviceptr m = 0;
    OK(cuMemAllocManaged(&m, 4096, 1 /* attach global */));
    *(volatile unsigned *)m = 42;
    OK(cuMemcpyDtoH_v2(back, m, 4));
    CHECK(back[0] == 42);
    OK(cuMemFree_v2(m));
    EXPECT(INVALID_VALUE, cuMemAllocManaged(&m, 4096, 77));
    /* Frees: null is fine, anything unknown is not. */
    OK(cuMemFree_v2(0));
    OK(cuMemFree_v2(q));
    EXPECT(INVALID_VALUE, cuMemFree_v2(q));
    EXPECT(INVALID_VALUE, cuMemFree_v2(p + 256));
    EXPECT(INVALID_VALUE, cuMemFree_v2(12345));
    OK(cuMemFree_v2(p));
    /* Pinned host memory costs no device memory. */
    void *pinned = NULL;
    OK(cuMemGetInfo_v2(&free0, &total));
    OK(cuMemAllocHost_v2(&pinned, 8 << 20));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 == free1);
    memset(pinned, 1, 8 << 20);
    OK(cuMemFreeHost(pinned));
    return finish("memory");
}
