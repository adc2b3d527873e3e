/* Memory of one process: made, used and ended in each way. */
#ifndef VCUDA_TESTS_FUZZ_OWN_H
#define VCUDA_TESTS_FUZZ_OWN_H
#include "base.h"
enum { RELEASE_THRESHOLD = 4, SPARSE_ARRAY = 0x40, FLOATS = 0x20 };
static const AccessDesc READ_WRITE = {{1, 0}, 3};

/* Something for the stream to do, so that what is freed behind it is freed later. */
static void keep_busy(Thread *t, CUstream stream)
{
    if (!one_in(&t->seed, 3)) return;
    unsigned ns = draw(&t->seed) % 8000000;
    t->calls++;
    MUST(launch(spin, stream, ns));
    t->calls++;
}

static CUdeviceptr addresses(size_t bytes)
{
    CUdeviceptr at = 0;
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}
static void unmap(CUdeviceptr at, size_t bytes)
{
    MUST(cuMemUnmap(at, bytes));
    MUST(cuMemAddressFree(at, bytes));
}

static void make_linear(Thread *t, Held *h)
{
    size_t bytes = some_bytes(&t->seed), pitch;
    int made;
    switch (draw(&t->seed) % 4) {
    case 0: made = SERVED(cuMemAllocPitch_v2(&h->address, &pitch, bytes / 64 + 1, 64, 4)); break;
    case 1: made = SERVED(cuMemAllocManaged(&h->address, bytes, 1)); break;
    default: made = SERVED(cuMemAlloc_v2(&h->address, bytes));
    }
    if (made) h->kind = LINEAR;
}

/* A pool of the thread's own, made if it is not there. At times it can be passed on, and at times it is the device's. */
static int some_pool(Thread *t)
{
    int i = draw(&t->seed) % OWN_POOLS;
    if (!t->pools[i]) {
        int can_share = one_in(&t->seed, 2);
        PoolProps props = {.alloc_type = 1, .handle_types = can_share, .location = {1, 0}};
        MUST(cuMemPoolCreate(&t->pools[i], &props));
        t->is_exported[i] = can_share ? 0 : -1;
        if (one_in(&t->seed, 2)) {
            uint64_t keep = one_in(&t->seed, 2) ? UINT64_MAX : some_bytes(&t->seed);
            MUST(cuMemPoolSetAttribute(t->pools[i], RELEASE_THRESHOLD, &keep));
        }
        if (one_in(&t->seed, 6)) MUST(cuDeviceSetMemPool(device, t->pools[i]));
    }
    return i;
}
/* A pool ends while memory of it may live, and while its frees may wait for their streams. */
static void end_pool(Thread *t, int i)
{
    if (t->pools[i]) MUST(cuMemPoolDestroy(t->pools[i]));
    t->pools[i] = NULL;
}
static void make_pooled(Thread *t, Held *h)
{
    CUstream stream = some_stream(t);
    size_t bytes = some_bytes(&t->seed);
    int made;
    if (one_in(&t->seed, 3)) {
        CUresult code = cuMemAllocAsync(&h->address, bytes, stream);
        /* The device's pool may be one that another thread has just ended. */
        made = code != INVALID_VALUE && served("cuMemAllocAsync", code);
    } else {
        made = SERVED(cuMemAllocFromPoolAsync(&h->address, bytes, t->pools[some_pool(t)], stream));
    }
    if (made) h->kind = POOLED;
}
static void free_pooled(Thread *t, CUdeviceptr address)
{
    CUstream stream = some_stream(t);
    if (one_in(&t->seed, 5)) {
        INSIST(cuMemFree_v2(address));
        return;
    }
    keep_busy(t, stream);
    MUST(cuMemFreeAsync(address, stream));
}
static void tend_pool(Thread *t)
{
    int i = draw(&t->seed) % OWN_POOLS;
    uint64_t keep = one_in(&t->seed, 2) ? 0 : some_bytes(&t->seed);
    if (!t->pools[i]) return;
    switch (draw(&t->seed) % 4) {
    case 0: MUST(cuMemPoolTrimTo(t->pools[i], keep)); break;
    case 1: MUST(cuMemPoolSetAttribute(t->pools[i], RELEASE_THRESHOLD, &keep)); break;
    default: end_pool(t, i);
    }
}

static void make_mapped(Thread *t, Held *h)
{
    AllocationProp prop = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
    h->bytes = some_pieces(&t->seed);
    if (!SERVED(cuMemCreate(&h->handle, h->bytes, &prop, 0))) return;
    h->kind = HANDLE;
    if (one_in(&t->seed, 4)) return;
    h->address = addresses(h->bytes);
    MUST(cuMemMap(h->address, h->bytes, 0, h->handle, 0));
    MUST(cuMemSetAccess(h->address, h->bytes, &READ_WRITE, 1));
    MUST(cuMemRelease(h->handle));
    h->kind = MAPPED;
}
static void free_mapped(Thread *t, Held *h)
{
    if (h->kind == MAPPED && one_in(&t->seed, 3)) {
        /* The handle outlives the mapping. */
        MUST(cuMemRetainAllocationHandle(&h->handle, (void *)(uintptr_t)h->address));
        unmap(h->address, h->bytes);
        MUST(cuMemRelease(h->handle));
    } else if (h->kind == MAPPED) {
        unmap(h->address, h->bytes);
    } else {
        MUST(cuMemRelease(h->handle));
    }
}

static void make_array(Thread *t, Held *h)
{
    size_t bytes = some_bytes(&t->seed);
    ArrayDescriptor flat = {bytes / 4096 % 16384 + 1, 1024, FLOATS, 1};
    Array3DDescriptor deep = {bytes / 4096 % 8192 + 1, 1024, 0, FLOATS, 1, 0};
    Array3DDescriptor huge = {16384, 16384, 0, FLOATS, 4, SPARSE_ARRAY};
    AllocationProp prop = {.type = 1, .location = {1, 0}, .flags.usage = 1 /* CU_MEM_CREATE_USAGE_TILE_POOL */};
    SparseProperties tiles;
    MapInfo map = {.operation = 1, .devices = 1};
    CUmemHandle memory;
    switch (draw(&t->seed) % 3) {
    case 0:
        if (SERVED(cuArrayCreate_v2((CUarray *)&h->object, &flat))) h->kind = ARRAY;
        return;
    case 1:
        if (SERVED(cuMipmappedArrayCreate((CUmipmappedArray *)&h->object, &deep, 4))) h->kind = MIPMAP;
        return;
    }
    if (!SERVED(cuArray3DCreate_v2((CUarray *)&h->object, &huge))) return;
    h->kind = SPARSE;
    MUST(cuArrayGetSparseProperties(&tiles, h->object));
    /* As many tiles of 64 KiB as there is memory. */
    if (!SERVED(cuMemCreate(&memory, 16 * MIB, &prop, 0))) return;
    map.resource = h->object;
    map.part.level.width = 16 * tiles.tile.width;
    map.part.level.height = 16 * tiles.tile.height;
    map.part.level.depth = 1;
    map.handle = memory;
    MUST(cuMemMapArrayAsync(&map, 1, some_stream(t)));
    MUST(cuMemRelease(memory));
}

/* A graph that allocates, works and frees. What another thread waits for may end the capture before (cuCtxSynchronize, and
 * what waits as it does). */
static void make_graph(Thread *t, Held *h)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr at = 0;
    CUstream stream = t->streams[0];
    MUST(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    CUresult code = cuMemAllocAsync(&at, some_bytes(&t->seed), stream);
    if (code == SUCCESS) code = launch(spin, stream, draw(&t->seed) % 3000000);
    if (code == SUCCESS) code = cuMemFreeAsync(at, stream);
    CUresult ended = cuStreamEndCapture(stream, &graph);
    if (code == SUCCESS) code = ended;
    if (code != SUCCESS && code != CAPTURE_INVALIDATED) wrong("capture", code);
    if (code != SUCCESS) return;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    h->object = exec;
    h->kind = GRAPH;
}
static void launch_graph(Thread *t, Held *h)
{
    CUstream stream = some_stream(t);
    keep_busy(t, stream);
    SERVED(cuGraphLaunch(h->object, stream));
}

/* A context with memory in it that ends with it, and a block of a pool, which does not. */
static void use_context(Thread *t)
{
    CUcontext own;
    CUmodule more;
    CUdeviceptr at, block;
    if (one_in(&t->seed, 2)) {
        if (!SERVED(cuModuleLoadData(&more, CODE))) return;
        MUST(cuModuleUnload(more));
        return;
    }
    if (!SERVED(cuCtxCreate_v2(&own, 0, device))) return;
    for (int i = draw(&t->seed) % 4; i > 0; i--) SERVED(cuMemAlloc_v2(&at, some_bytes(&t->seed)));
    if (SERVED(cuMemAllocFromPoolAsync(&block, some_bytes(&t->seed), t->pools[some_pool(t)], NULL))) {
        MUST(cuMemFreeAsync(block, NULL));
    }
    MUST(cuCtxDestroy_v2(own));
    MUST(cuCtxSetCurrent(context));
}
#endif
