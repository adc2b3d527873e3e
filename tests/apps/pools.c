/* What pools hold is paid for: pools SCENARIO. Under a quota, each step is checked against cuMemGetInfo and the driver's own
 * figures of its pools; the test's caller checks the machine's record. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (CUdevice, CUmemoryPool))                                         \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (CUmemoryPool *, CUdevice))
#include "driver.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#define MIB ((size_t)1 << 20)
enum { RELEASE_THRESHOLD = 4, RESERVED = 5, USED = 7 };
static size_t limit, base;
static CUstream stream;
static CUmemoryPool pool;
static size_t used(void)
{
    size_t left = 0, total = 0;
    OK(cuMemGetInfo_v2(&left, &total));
    return total - left;
}
static uint64_t figure(CUmemoryPool of, int which)
{
    uint64_t value = ~0ull;
    OK(cuMemPoolGetAttribute(of, which, &value));
    return value;
}
static void keep(CUmemoryPool of, uint64_t threshold) { OK(cuMemPoolSetAttribute(of, RELEASE_THRESHOLD, &threshold)); }
static void synchronise(void) { OK(cuStreamSynchronize(stream)); }
static CUmemoryPool own_pool(int on)
{
    PoolProps props = {.alloc_type = 1, .location = {1, on}};
    CUmemoryPool made = NULL;
    OK(cuMemPoolCreate(&made, &props));
    return made;
}
/* Paid: what was there before, and what this pool holds. */
static void pays(CUmemoryPool of) { CHECK(used() == base + figure(of, RESERVED)); }

static void threshold(void)
{
    CUdeviceptr p, q;
    OK(cuMemAllocAsync(&p, 10 * MIB, stream));
    CHECK(figure(pool, RESERVED) >= 10 * MIB);
    pays(pool);
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    CHECK(used() == base);
    keep(pool, UINT64_MAX);
    OK(cuMemAllocAsync(&p, 10 * MIB, stream));
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    CHECK(figure(pool, RESERVED) >= 10 * MIB);
    pays(pool);
    /* What it holds serves again, and costs nothing more. */
    size_t before = used();
    OK(cuMemAllocAsync(&p, 10 * MIB, stream));
    CHECK(used() == before);
    OK(cuMemAllocAsync(&q, 1, stream));
    CHECK(used() > before);
    pays(pool);
    OK(cuMemFree_v2(p));
    OK(cuMemFreeAsync(q, stream));
    synchronise();
    pays(pool);
    OK(cuMemPoolTrimTo(pool, 4 * MIB));
    CHECK(figure(pool, RESERVED) == 4 * MIB);
    pays(pool);
    /* A lower threshold gives back at the next synchronisation. */
    keep(pool, 0);
    synchronise();
    CHECK(used() == base);
}

/* A pool that fills the quota gives way to others before they are refused. */
static void full(void)
{
    CUdeviceptr pieces[512], p = 0x1234;
    size_t count = 0;
    keep(pool, UINT64_MAX);
    CUresult code;
    while ((code = cuMemAllocAsync(&pieces[count], 5 * MIB, stream)) == SUCCESS) count++;
    EXPECT(OUT_OF_MEMORY, code);
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync(&p, 5 * MIB, stream));
    CHECK(p == 0x1234);
    CHECK(limit - used() < 7 * MIB);
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&p, 7 * MIB));
    /* What lives stays; a piece that was freed serves the next. */
    OK(cuMemFreeAsync(pieces[--count], stream));
    synchronise();
    OK(cuMemAllocAsync(&pieces[count], 5 * MIB, stream));
    count++;
    while (count > 0) OK(cuMemFreeAsync(pieces[--count], stream));
    synchronise();
    CHECK(limit - used() < 7 * MIB); /* all of it idle, and held */
    OK(cuMemAlloc_v2(&p, limit - base)); /* to the byte */
    CHECK(used() == limit);
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync(&p, 1, stream));
    OK(cuMemFree_v2(p));
    /* Of two pools one holds all, and the other wants some. */
    CUmemoryPool other = own_pool(0);
    keep(other, UINT64_MAX);
    OK(cuMemAllocAsync(&p, (limit - base) / 4 * 3, stream));
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    OK(cuMemAllocFromPoolAsync(&p, (limit - base) / 4 * 3, other, stream));
    pays(other);
    /* The pool that is current is the one that is asked and pays. */
    OK(cuDeviceSetMemPool(device, other));
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    size_t before = used();
    OK(cuMemAllocAsync(&p, MIB, stream));
    CHECK(used() == before && figure(other, USED) == MIB);
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    OK(cuMemPoolDestroy(other));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(used() == base);
}

/* What is freed in the order of a stream is there until the stream gets there. */
static void ordered(void)
{
    size_t most = (limit - base) / 3 * 2;
    CUdeviceptr p, q = 0;
    for (int is_pooled = 0; is_pooled < 2; is_pooled++) {
        OK(is_pooled ? cuMemAllocAsync(&p, most, stream) : cuMemAlloc_v2(&p, most));
        OK(launch(spin, stream, 300000000));
        OK(cuMemFreeAsync(p, stream));
        CHECK(used() >= base + most);
        EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&q, most));
        EXPECT(INVALID_VALUE, cuMemFree_v2(0x77));
        synchronise();
        CHECK(used() == base);
        OK(cuMemAlloc_v2(&q, most));
        OK(cuMemFree_v2(q));
    }
    /* Also on a stream that is gone meanwhile, and without a synchronisation: before a denial. */
    CUstream brief;
    OK(cuStreamCreate(&brief, STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&p, most));
    OK(launch(spin, brief, 20000000));
    OK(cuMemFreeAsync(p, brief));
    OK(cuStreamDestroy_v2(brief));
    CUresult code = OUT_OF_MEMORY;
    for (int i = 0; i < 500 && (code = cuMemAlloc_v2(&q, most)) == OUT_OF_MEMORY; i++) usleep(10000);
    EXPECT(SUCCESS, code);
    OK(cuMemFree_v2(q));
    CHECK(used() == base);
}

/* A destroyed pool is paid for as long as memory of it lives. */
static void destroyed(void)
{
    CUmemoryPool one = own_pool(0);
    CUdeviceptr p, q, r;
    keep(one, UINT64_MAX);
    OK(cuMemAllocFromPoolAsync(&p, 10 * MIB, one, stream));
    OK(cuMemAllocFromPoolAsync(&q, 10 * MIB, one, stream));
    OK(cuMemAllocFromPoolAsync(&r, 10 * MIB, one, stream));
    OK(cuMemFreeAsync(r, stream));
    synchronise();
    CHECK(used() == base + 30 * MIB);
    OK(cuMemPoolDestroy(one));
    CHECK(used() == base + 20 * MIB);
    CHECK(cuMemPoolDestroy(one) != SUCCESS);
    OK(cuMemFree_v2(q));
    CHECK(used() >= base + 10 * MIB && used() <= base + 20 * MIB);
    OK(launch(spin, stream, 100000000));
    OK(cuMemFreeAsync(p, stream));
    CHECK(used() >= base + 10 * MIB);
    synchronise();
    CHECK(used() == base);
    /* Destroyed while the free of its last piece waits for a stream, which may be gone too. */
    for (int is_gone = 0; is_gone < 2; is_gone++) {
        CUstream brief;
        OK(cuStreamCreate(&brief, STREAM_NON_BLOCKING));
        CUmemoryPool two = own_pool(0);
        OK(cuMemAllocFromPoolAsync(&p, 10 * MIB, two, brief));
        OK(launch(spin, brief, 100000000));
        OK(cuMemFreeAsync(p, brief));
        if (is_gone) OK(cuStreamDestroy_v2(brief));
        OK(cuMemPoolDestroy(two));
        CHECK(used() >= base + 10 * MIB);
        OK(cuCtxSynchronize());
        CHECK(used() == base);
        if (!is_gone) OK(cuStreamDestroy_v2(brief));
    }
    /* No bytes may be a piece too, for which the pool grows. */
    OK(cuMemAllocAsync(&p, 0, stream));
    CHECK(used() > base);
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    CHECK(used() == base);
    /* What came to nothing costs nothing. */
    EXPECT(INVALID_VALUE, cuMemPoolCreate(NULL, NULL));
    EXPECT(INVALID_VALUE, cuMemAllocFromPoolAsync(&p, 1, one, stream));
    EXPECT(INVALID_VALUE, cuMemAllocFromPoolAsync(&p, 1, NULL, stream));
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync(&p, SIZE_MAX, stream));
    EXPECT(OUT_OF_MEMORY, cuMemAllocAsync(&p, SIZE_MAX - MIB, stream));
    CHECK(used() == base);
}

/* A context that ends beside memory of a destroyed pool, of which nothing tells, gives back all that it took. What the
 * next one takes is known afterwards, and reserved for one more: the caller checks that the quota is kept. */
static void contexts(void)
{
    CUmemoryPool one = own_pool(0);
    CUdeviceptr p, rest;
    CUcontext own;
    OK(cuMemAllocFromPoolAsync(&p, 2 * MIB, one, stream));
    OK(cuMemPoolDestroy(one));
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        OK(cuCtxCreate_v2(&own, 0, device));
        OK(cuCtxDestroy_v2(own));
        OK(cuCtxSetCurrent(context));
        CHECK(used() == base + (is_alone ? 0 : 2 * MIB));
        if (!is_alone) OK(cuMemFree_v2(p));
    }
    OK(cuMemAlloc_v2(&rest, limit - base - 3 * MIB));
    EXPECT(OUT_OF_MEMORY, cuCtxCreate_v2(&own, 0, device));
    OK(cuMemFree_v2(rest));
    CHECK(used() == base);
}

/* A pool of the second GPU, used from a stream of the first. */
static void second(void)
{
    CUcontext there;
    CUdevice other;
    OK(cuDeviceGet(&other, 1));
    OK(cuDevicePrimaryCtxRetain(&there, other));
    OK(cuCtxPushCurrent_v2(there));
    size_t before = used();
    OK(cuCtxPopCurrent_v2(NULL));
    base = used();
    CUmemoryPool far = own_pool(1);
    CUdeviceptr p, q = 0;
    OK(cuMemAllocFromPoolAsync(&p, 10 * MIB, far, stream));
    CHECK(used() == base);
    OK(cuCtxPushCurrent_v2(there));
    CHECK(used() == before + 10 * MIB);
    OK(cuCtxPopCurrent_v2(NULL));
    EXPECT(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&q, limit - before - 9 * MIB, far, stream));
    OK(cuMemAllocAsync(&q, limit - base - 12 * MIB, stream)); /* there is room here */
    OK(cuMemFreeAsync(q, stream));
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    OK(cuCtxPushCurrent_v2(there));
    CHECK(used() == before);
    OK(cuCtxPopCurrent_v2(NULL));
    CHECK(used() == base);
    OK(cuMemPoolDestroy(far));
}

/* Threads that fill and empty one pool and pools of their own; the caller looks at the machine's highest figure. */
static size_t served, refused;
static void *storm(void *number)
{
    unsigned seed = (unsigned)(size_t)number * 2654435761u + 1;
    CUstream s;
    CUmemoryPool mine = own_pool(0);
    CUdeviceptr held[8] = {0};
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    if ((size_t)number % 2) keep(mine, UINT64_MAX);
    /* Longer where threads seldom run at once. */
    for (int i = 0; i < 8000 || (i < 80000 && refused <= 100); i++) {
        seed = seed * 1103515245 + 12345;
        size_t bytes = (seed >> 7) % (24 * MIB) + 1;
        CUdeviceptr *p = &held[(seed >> 5) % 8];
        if (*p) {
            OK(seed >> 30 ? cuMemFreeAsync(*p, s) : cuMemFree_v2(*p));
            *p = 0;
        } else {
            CUresult code = seed >> 28 & 1 ? cuMemAllocAsync(p, bytes, s) : cuMemAllocFromPoolAsync(p, bytes, mine, s);
            if (code != SUCCESS) EXPECT(OUT_OF_MEMORY, code);
            __atomic_fetch_add(code == SUCCESS ? &served : &refused, 1, __ATOMIC_RELAXED);
        }
        if (i % 50 == 0) OK(cuStreamSynchronize(s));
        if (i % 170 == 0) OK(cuMemPoolTrimTo(mine, 3 * MIB));
    }
    for (int i = 0; i < 8; i++)
        if (held[i]) OK(cuMemFreeAsync(held[i], s));
    OK(cuStreamSynchronize(s));
    OK(cuMemPoolDestroy(mine));
    OK(cuStreamDestroy_v2(s));
    return NULL;
}
static void threads(void)
{
    pthread_t all[6];
    keep(pool, 20 * MIB);
    for (size_t i = 0; i < 6; i++) pthread_create(&all[i], NULL, storm, (void *)i);
    for (size_t i = 0; i < 6; i++) pthread_join(all[i], NULL);
    CHECK(served > 1000 && refused > 100);
    keep(pool, 0);
    OK(cuCtxSynchronize());
    CHECK(figure(pool, RESERVED) == 0);
    CHECK(used() == base);
}

/* Holds 30 MiB that live and 40 that lie idle, until it is killed. */
/* Nothing is waited for by a call that says so: an answer looks for itself. */
static void queried(void)
{
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 20 * MIB));
    OK(launch(spin, stream, 20000000));
    OK(cuMemFreeAsync(p, stream));
    CHECK(used() >= base + 20 * MIB);
    while (cuStreamQuery(stream) == NOT_READY) usleep(1000);
    CHECK(used() == base);
}

/* The driver takes back what a pool holds idle when the GPU has no other memory left. */
static void squeezed(void)
{
    CUdeviceptr p;
    keep(pool, UINT64_MAX);
    OK(cuMemAllocAsync(&p, 60 * MIB, stream));
    OK(cuMemFreeAsync(p, stream));
    synchronise();
    pays(pool);
    OK(cuMemAlloc_v2(&p, 70 * MIB));
    CHECK(figure(pool, RESERVED) == 0);
    /* What the GPU has left, and not what the quota would leave if the pool held its memory still (16 MiB). */
    size_t left = limit - used();
    CHECK(left > 20 * MIB && left < 40 * MIB);
    if (failures) return;
    printf("squeezed\n");
    fflush(stdout);
    pause();
}

static void hold(void)
{
    CUdeviceptr p, q;
    keep(pool, UINT64_MAX);
    OK(cuMemAllocAsync(&p, 30 * MIB, stream));
    OK(cuMemAllocAsync(&q, 40 * MIB, stream));
    OK(cuMemFreeAsync(q, stream));
    /* Gone with the synchronisation, after which nothing is asked. */
    CUmemoryPool brief = own_pool(0);
    OK(cuMemAllocFromPoolAsync(&p, 25 * MIB, brief, stream));
    OK(cuMemAlloc_v2(&q, 15 * MIB));
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemFreeAsync(q, stream));
    synchronise();
    printf("holding\n");
    fflush(stdout);
    pause();
}

/* Another process of the container has at once what a synchronisation has given back here. */
static void neighbour(int from, int to, int is_parent)
{
    CUdeviceptr p, q;
    char byte = 0;
    if (!is_parent) {
        CHECK(write(to, &byte, 1) == 1); /* both have their contexts */
        CHECK(read(from, &byte, 1) == 1);
        base = used();
        CHECK(write(to, &byte, 1) == 1);
        CHECK(read(from, &byte, 1) == 1);
        CHECK(used() == base);
        OK(cuMemAlloc_v2(&p, limit - base));
        CHECK(write(to, &byte, 1) == 1);
        return;
    }
    CHECK(read(from, &byte, 1) == 1);
    CHECK(write(to, &byte, 1) == 1);
    CHECK(read(from, &byte, 1) == 1);
    synchronise(); /* with nothing on its way */
    OK(cuMemAllocAsync(&p, 100 * MIB, stream));
    OK(cuMemAlloc_v2(&q, 50 * MIB));
    OK(launch(spin, stream, 10000000));
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemFreeAsync(q, stream));
    synchronise();
    CHECK(write(to, &byte, 1) == 1);
    CHECK(read(from, &byte, 1) == 1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t left;
    int to_child[2], to_parent[2];
    pid_t child = 1;
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    if (!strcmp(what, "neighbour")) child = fork();
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemGetInfo_v2(&left, &limit));
    base = limit - left;
    if (!strcmp(what, "threshold")) threshold();
    else if (!strcmp(what, "full")) full();
    else if (!strcmp(what, "ordered")) ordered();
    else if (!strcmp(what, "destroyed")) destroyed();
    else if (!strcmp(what, "contexts")) contexts();
    else if (!strcmp(what, "second")) second();
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "queried")) queried();
    else if (!strcmp(what, "squeezed")) squeezed();
    else if (!strcmp(what, "hold")) hold();
    else if (!strcmp(what, "neighbour")) {
        neighbour(child ? to_parent[0] : to_child[0], child ? to_child[1] : to_parent[1], child != 0);
        if (!child) return failures != 0;
        int status = 1;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    else CHECK(!"a scenario");
    return finish(what);
}
