/* Virtual memory management. CUDA Driver API: "Virtual Memory Management". */
#include "../driver.h"
#include "answers.h"
int main(void)
{
    setup();
    AllocationProp prop = {.type = 1 /* pinned */, .location = {1 /* device */, 0}};
    size_t granularity = 0, free0, free1, total;
    OK(cuMemGetAllocationGranularity(&granularity, &prop, 0 /* minimum */));
    CHECK(granularity > 0 && (granularity & (granularity - 1)) == 0);
    size_t size = 16 * granularity;
    CUmemHandle handle = 0;
    CUdeviceptr va = 0;
    OK(cuMemGetInfo_v2(&free0, &total));
    EXPECT(INVALID_VALUE, cuMemCreate(&handle, size + 1, &prop, 0)); /* not a multiple */
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free0 - free1 >= size);
    OK(cuMemAddressReserve(&va, size, 0, 0, 0)); /* costs nothing */
    OK(cuMemGetInfo_v2(&free0, &total));
    CHECK(free0 == free1);
    OK(cuMemMap(va, size, 0, handle, 0));
    EXPECT(INVALID_VALUE, cuMemMap(va, size, 0, handle, 0)); /* already mapped */
    AccessDesc access = {{1, 0}, 3 /* read-write */};
    OK(cuMemSetAccess(va, size, &access, 1));
    OK(cuMemsetD32_v2(va, 0xabcd1234, size / 4));
    unsigned last = 0;
    OK(cuMemcpyDtoH_v2(&last, va + size - 4, 4));
    CHECK(last == 0xabcd1234);
    /* Releasing the handle frees nothing while a mapping lives; the contents stay. */
    OK(cuMemRelease(handle));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 == free0);
    OK(cuMemcpyDtoH_v2(&last, va, 4));
    CHECK(last == 0xabcd1234);
    OK(cuMemUnmap(va, size));
    OK(cuMemGetInfo_v2(&free1, &total));
    CHECK(free1 >= free0 + size);
    OK(cuMemUnmap(va, size)); /* nothing is mapped: no error */
    OK(cuMemAddressFree(va, size));
    EXPECT(INVALID_VALUE, cuMemRelease(handle));
    EXPECT(OUT_OF_MEMORY, cuMemCreate(&handle, (size_t)1 << 46, &prop, 0));
    /* A range of which only the first half is mapped. */
    OK(cuMemAddressReserve(&va, 2 * size, 0, 0, 0));
    OK(cuMemGetInfo_v2(&free0, &total));
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemMap(va, size, 0, handle, 0));
    OK(cuMemRelease(handle));
    int is_unmapped = told("vmm_unmap_half_mapped", cuMemUnmap(va, 2 * size)) == SUCCESS;
    OK(cuMemGetInfo_v2(&free1, &total));
    tell("vmm_half_mapped_left", free0 - free1, "bytes");
    CHECK(free0 - free1 == (is_unmapped ? 0 : size));
    if (!is_unmapped) OK(cuMemUnmap(va, size));
    OK(cuMemAddressFree(va, 2 * size));
    AllocationProp wild = {.type = 1, .location = {1, 1000}};
    CHECK(cuMemCreate(&handle, size, &wild, 0) != SUCCESS);
    return finish("vmm");
}
