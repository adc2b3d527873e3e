/* Pools shared between processes. CUDA Driver API: "Stream Ordered Memory Allocator". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020,                                       \
      (void *, CUmemoryPool, int, unsigned long long))                                                                 \
    X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020,                                   \
      (CUmemoryPool *, void *, int, unsigned long long))                                                               \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (PointerData *, CUdeviceptr))                             \
    X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, (CUdeviceptr *, CUmemoryPool, PointerData *))             \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (CUdevice, CUmemoryPool))                                         \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))             \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, CUdeviceptr))
typedef struct { unsigned char bytes[64]; } PointerData;
#include "../driver.h"
#include "answers.h"
#include "second.h"
enum { FILE_DESCRIPTOR = 1, RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5, USED_CURRENT = 7 };
#define SIZE (64ul << 20)
static const PoolProps SHAREABLE = {.alloc_type = 1, .handle_types = FILE_DESCRIPTOR, .location = {1, 0}};
static const PoolProps PLAIN = {.alloc_type = 1, .location = {1, 0}};

static void *as_handle(int fd) { return (void *)(intptr_t)fd; }
static uint64_t attribute(CUmemoryPool pool, int which)
{
    uint64_t value = ~0ull;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}
static unsigned word(CUdeviceptr at)
{
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, at, sizeof value));
    return value;
}

static int importer(void)
{
    be_second();
    setup();
    meet();
    PointerData data, garbage;
    memset(&garbage, 7, sizeof garbage);
    CUmemoryPool pool = NULL, own = NULL;
    CUmemHandle handle = 0;
    CUdeviceptr p = 0;
    int fd = hear(&data, sizeof data);
    size_t before = free_bytes();
    CHECK(cuMemPoolImportFromShareableHandle(&pool, as_handle(-1), FILE_DESCRIPTOR, 0) != SUCCESS);
    CHECK(cuMemPoolImportFromShareableHandle(&pool, as_handle(0), FILE_DESCRIPTOR, 0) != SUCCESS);
    EXPECT(INVALID_VALUE, cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), FILE_DESCRIPTOR, 1));
    EXPECT(INVALID_VALUE, cuMemPoolImportFromShareableHandle(NULL, as_handle(fd), FILE_DESCRIPTOR, 0));
    CHECK(cuMemImportFromShareableHandle(&handle, as_handle(fd), FILE_DESCRIPTOR) != SUCCESS); /* no memory */
    OK(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), FILE_DESCRIPTOR, 0));
    close(fd);
    CHECK(cuMemAllocFromPoolAsync(&p, 1 << 20, pool, NULL) != SUCCESS); /* no new allocations */
    CHECK(cuDeviceSetMemPool(device, pool) != SUCCESS);
    CHECK(cuMemPoolImportPointer(&p, pool, &garbage) != SUCCESS);
    OK(cuMemPoolCreate(&own, &SHAREABLE));
    CHECK(cuMemPoolImportPointer(&p, own, &data) != SUCCESS);
    OK(cuMemPoolDestroy(own));
    CHECK(p == 0);
    OK(cuMemPoolImportPointer(&p, pool, &data));
    CHECK(free_bytes() == before);
    CHECK(word(p) == 0x11111111 && word(p + SIZE - 4) == 0x22222222);
    OK(cuMemsetD32_v2(p, 0x33333333, 1));
    OK(cuCtxSynchronize());
    EXPECT(INVALID_VALUE, cuMemPoolDestroy(pool)); /* not before what was imported from it */
    CHECK(word(p) == 0x33333333);
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&handle, p, 4) != SUCCESS);
    CHECK(free_bytes() == before);
    meet();
    meet(); /* the exporter has freed and trimmed */
    OK(cuMemPoolDestroy(pool));
    meet();
    meet();
    return finish("pool importer");
}

static int maker(void)
{
    be_second();
    setup();
    CUmemoryPool pool = NULL;
    CUdeviceptr p = 0;
    PointerData data;
    int fd = -1;
    OK(cuMemPoolCreate(&pool, &SHAREABLE));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, FILE_DESCRIPTOR, 0));
    OK(cuMemAllocFromPoolAsync(&p, SIZE, pool, NULL));
    OK(cuMemsetD32_v2(p, 0x55555555, SIZE / 4));
    OK(cuCtxSynchronize());
    OK(cuMemPoolExportPointer(&data, p));
    say(&data, sizeof data, fd);
    pause();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "importer")) return importer();
    if (argc > 1 && !strcmp(argv[1], "maker")) return maker();
    setup();
    CUmemoryPool pool = NULL, plain = NULL;
    CUdeviceptr p = 0, q = 0;
    PointerData data;
    int fd = -1;
    size_t alone = free_bytes();
    OK(cuMemPoolCreate(&plain, &PLAIN));
    EXPECT(INVALID_VALUE, cuMemPoolExportToShareableHandle(&fd, plain, FILE_DESCRIPTOR, 0));
    OK(cuMemAllocFromPoolAsync(&q, 1 << 20, plain, NULL));
    EXPECT(INVALID_VALUE, cuMemPoolExportPointer(&data, q));
    OK(cuMemFreeAsync(q, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(plain));
    OK(cuMemPoolCreate(&pool, &SHAREABLE));
    EXPECT(INVALID_VALUE, cuMemPoolExportToShareableHandle(NULL, pool, FILE_DESCRIPTOR, 0));
    EXPECT(INVALID_VALUE, cuMemPoolExportToShareableHandle(&fd, pool, FILE_DESCRIPTOR, 1));
    EXPECT(INVALID_VALUE, cuMemPoolExportToShareableHandle(&fd, pool, 0, 0));
    CHECK(fd == -1);
    OK(cuMemPoolExportToShareableHandle(&fd, pool, FILE_DESCRIPTOR, 0));
    CHECK(fd >= 0 && free_bytes() == alone);
    start_second(argv[0], "importer");
    meet();
    size_t before = free_bytes();
    OK(cuMemAllocFromPoolAsync(&p, SIZE, pool, NULL));
    OK(cuMemsetD32_v2(p, 0x11111111, 1));
    OK(cuMemsetD32_v2(p + SIZE - 4, 0x22222222, 1));
    OK(cuCtxSynchronize());
    OK(cuMemPoolExportPointer(&data, p));
    CHECK(word(p) == 0x11111111 && word(p + SIZE - 4) == 0x22222222);
    EXPECT(INVALID_VALUE, cuMemPoolExportPointer(NULL, p));
    CHECK(attribute(pool, RESERVED_CURRENT) >= SIZE && attribute(pool, USED_CURRENT) == SIZE);
    CHECK(before - free_bytes() == attribute(pool, RESERVED_CURRENT));
    say(&data, sizeof data, fd);
    close(fd);
    meet(); /* imported, read, written and freed there */
    CHECK(word(p) == 0x33333333);
    CHECK(attribute(pool, USED_CURRENT) == SIZE);
    uint64_t threshold = ~0ull;
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    /* The block is the pool's again, with what it took. */
    CHECK(attribute(pool, USED_CURRENT) == 0 && attribute(pool, RESERVED_CURRENT) >= SIZE);
    CHECK(before - free_bytes() == attribute(pool, RESERVED_CURRENT));
    /* Trimmed while the other process still has the pool: on an H200 the figures were not equal here. */
    OK(cuMemPoolTrimTo(pool, 1));
    tell("pool_trimmed_to_1_reserved", attribute(pool, RESERVED_CURRENT), "bytes");
    tell("pool_trimmed_to_1_taken", before - free_bytes(), "bytes");
    CHECK(attribute(pool, RESERVED_CURRENT) >= 1);
    OK(cuMemPoolTrimTo(pool, 0));
    tell("pool_trimmed_reserved", attribute(pool, RESERVED_CURRENT), "bytes");
    tell("pool_trimmed_taken", before - free_bytes(), "bytes");
    meet();
    meet(); /* the other process has destroyed its pool */
    tell("pool_trimmed_alone_reserved", attribute(pool, RESERVED_CURRENT), "bytes");
    tell("pool_trimmed_alone_taken", before - free_bytes(), "bytes");
    OK(cuMemPoolTrimTo(pool, 0));
    /* On an H200 the other process keeps the memory until it ends. */
    CHECK(attribute(pool, RESERVED_CURRENT) == 0 && (!is_simulated() || free_becomes(before)));
    OK(cuMemPoolDestroy(pool));
    meet();
    end_second();
    CHECK(free_becomes(alone));
    /* The exporter is killed. */
    start_second(argv[0], "maker");
    fd = hear(&data, sizeof data);
    OK(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), FILE_DESCRIPTOR, 0));
    close(fd);
    OK(cuMemPoolImportPointer(&p, pool, &data));
    kill_second();
    CHECK(word(p) == 0x55555555 && word(p + SIZE - 4) == 0x55555555);
    CHECK(free_becomes(alone - SIZE));
    OK(cuMemFree_v2(p));
    OK(cuMemPoolDestroy(pool));
    CHECK(free_becomes(alone));
    return finish("pool_share");
}
