/* Stream-ordered allocation. CUDA Driver API: "Stream Ordered Memory Allocator". */
#include "../driver.h"
#include "answers.h"
enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5, RESERVED_HIGH = 6, USED_CURRENT = 7, USED_HIGH = 8 };
static uint64_t attribute(CUmemoryPool pool, int which)
{
    uint64_t value = ~0ull;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}
int main(void)
{
    setup();
    CUmemoryPool pool = NULL, own = NULL;
    CUstream stream = NULL;
    CUdeviceptr p = 0, q = 0;
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    CHECK(attribute(pool, RELEASE_THRESHOLD) == 0); /* default: give back at the next synchronisation */
    OK(cuMemAllocAsync(&p, 32 << 20, stream));
    CHECK(attribute(pool, USED_CURRENT) >= (32u << 20));
    CHECK(attribute(pool, RESERVED_CURRENT) >= attribute(pool, USED_CURRENT));
    OK(cuMemsetD8Async(p, 3, 32 << 20, stream));
    unsigned char byte = 0;
    OK(cuMemcpyDtoHAsync_v2(&byte, p + (32 << 20) - 1, 1, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(byte == 3);
    CHECK(attribute(pool, USED_CURRENT) == 0);
    CHECK(attribute(pool, RESERVED_CURRENT) == 0);
    CHECK(attribute(pool, USED_HIGH) >= (32u << 20));
    /* With a threshold the pool keeps what was freed, until it is trimmed. */
    uint64_t threshold = 1ull << 30;
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    OK(cuMemAllocAsync(&p, 32 << 20, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(attribute(pool, USED_CURRENT) == 0);
    CHECK(attribute(pool, RESERVED_CURRENT) >= (32u << 20));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(attribute(pool, RESERVED_CURRENT) == 0);
    threshold = 0;
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    /* A pool of one's own; cuMemFree accepts a stream-ordered allocation. */
    PoolProps props = {.alloc_type = 1 /* pinned */, .location = {1 /* device */, 0}};
    OK(cuMemPoolCreate(&own, &props));
    OK(cuMemAllocFromPoolAsync(&q, 1 << 20, own, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(q));
    OK(cuMemPoolDestroy(own));
    /* And cuMemFreeAsync accepts memory of cuMemAlloc (Programming Guide, "Stream Ordered Memory Allocator"). */
    OK(cuMemAlloc_v2(&q, 1 << 20));
    OK(cuMemFreeAsync(q, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(INVALID_VALUE, cuMemFree_v2(q));
    /* No bytes are no error. Whether they have an address, an H200 has not told yet: else it is null, or what was there. */
    p = 0xdead;
    OK(cuMemAllocAsync(&p, 0, stream));
    tell("pool_0_bytes_address", p, "address");
    tell("pool_0_bytes_used", attribute(pool, USED_CURRENT), "bytes");
    tell("pool_0_bytes_reserved", attribute(pool, RESERVED_CURRENT), "bytes");
    told("pool_free_null", cuMemFreeAsync(0, stream));
    if (p != 0 && p != 0xdead) OK(cuMemFreeAsync(p, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(attribute(pool, USED_CURRENT) == 0 && attribute(pool, RESERVED_CURRENT) == 0);
    EXPECT(INVALID_VALUE, cuMemAllocAsync(NULL, 16, stream));
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync(&p, (size_t)1 << 46, stream));
    CHECK(cuMemFreeAsync(p + 1, stream) != SUCCESS);
    OK(cuStreamDestroy_v2(stream));
    return finish("pool");
}
