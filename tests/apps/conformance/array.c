/* Arrays and mipmapped arrays. CUDA Driver API: cuArrayCreate, cuArray3DCreate, cuMipmappedArrayCreate. */
#include "../driver.h"
#include "answers.h"
int main(void)
{
    setup();
    size_t free0, free1, total;
    CUarray array = NULL;
    OK(cuMemGetInfo_v2(&free0, &total));
    /* 4096 x 4096 floats with 4 channels: 256 MiB. Bytes, not bits. */
    ArrayDescriptor d = {4096, 4096, 0x20 /* FLOAT */, 4};
    OK(cuArrayCreate_v2(&array, &d));
    OK(cuMemGetInfo_v2(&free1, &total));
    tell("array_256M", free0 - free1, "bytes");
    CHECK(free0 - free1 >= (256u << 20) && free0 - free1 <= (260u << 20));
    ArrayDescriptor back;
    OK(cuArrayGetDescriptor_v2(&back, array));
    CHECK(back.Width == 4096 && back.Height == 4096 && back.Format == 0x20 && back.NumChannels == 4);
    OK(cuArrayDestroy(array));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 == free0);
    if (is_simulated()) CHECK(cuArrayDestroy(array) != SUCCESS); /* an H200's driver crashes (580.159.04) */
    /* Height 0 is a one-dimensional array, not an empty one. */
    ArrayDescriptor line = {65536, 0, 0x20, 1};
    OK(cuArrayCreate_v2(&array, &line));
    /* Contents go through the array. */
    float in[256], out[256];
    for (int i = 0; i < 256; i++) in[i] = (float)i;
    Copy2D copy = {.srcMemoryType = MEMORY_HOST, .srcHost = in, .srcPitch = sizeof in, .dstMemoryType = MEMORY_ARRAY,
                   .dstArray = array, .WidthInBytes = sizeof in, .Height = 1};
    OK(cuMemcpy2D_v2(&copy));
    Copy2D read = {.srcMemoryType = MEMORY_ARRAY, .srcArray = array, .dstMemoryType = MEMORY_HOST, .dstHost = out,
                   .dstPitch = sizeof out, .WidthInBytes = sizeof out, .Height = 1};
    OK(cuMemcpy2D_v2(&read));
    CHECK(memcmp(in, out, sizeof in) == 0);
    OK(cuArrayDestroy(array));
    ArrayDescriptor empty = {0, 0, 0x20, 1};
    EXPECT(INVALID_VALUE, cuArrayCreate_v2(&array, &empty));
    ArrayDescriptor three = {16, 16, 0x20, 3}; /* 1, 2 or 4 channels */
    EXPECT(INVALID_VALUE, cuArrayCreate_v2(&array, &three));
    if (is_simulated()) EXPECT(INVALID_VALUE, cuArrayCreate_v2(NULL, &d));
    OK(cuMemGetInfo_v2(&free0, &total));
    Array3DDescriptor cube = {256, 256, 64, 0x20, 1, 0};
    OK(cuArray3DCreate_v2(&array, &cube));
    OK(cuMemGetInfo_v2(&free1, &total));
    tell("array_16M", free0 - free1, "bytes");
    CHECK(free0 - free1 >= (16u << 20) && free0 - free1 <= (20u << 20));
    OK(cuArrayDestroy(array));
    /* A mipmap holds all its levels: 4/3 of the first one. */
    CUmipmappedArray mip = NULL;
    Array3DDescriptor flat = {2048, 2048, 0, 0x20, 4, 0};
    OK(cuMemGetInfo_v2(&free0, &total));
    OK(cuMipmappedArrayCreate(&mip, &flat, 12));
    OK(cuMemGetInfo_v2(&free1, &total));
    tell("array_mipmap_85M", free0 - free1, "bytes");
    CHECK(free0 - free1 >= (85u << 20) && free0 - free1 <= (96u << 20));
    OK(cuMipmappedArrayDestroy(mip));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 == free1);
    return finish("array");
}
