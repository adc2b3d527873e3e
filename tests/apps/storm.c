/* Every kind of device memory, allocated and freed at random by several threads: storm OPERATIONS THREADS SEED [BYTES].
 * OPERATIONS of 0 go on until killed;
 * STORM_PAUSE_US in the environment is a rest after each 64 of them. BYTES is the largest request (default 64 MiB). Prints "started", at the end
 * everything is freed and it prints "done OPERATIONS refused N failed M". What is refused must be refused as
 * CUDA_ERROR_OUT_OF_MEMORY with the out-parameters untouched; frees of what was never allocated must be refused too.
 * "failed" counts what the machine was told to fail with another code (machine.toml, faults). */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
enum { HELD = 48, STREAMS = 2, BLOCK = 2 << 20, UNTOUCHED = 0x5a, INJECTED = 999 };
enum kind { NONE, LINEAR, MANAGED, PITCH, ASYNC, FROM_POOL, VMM, ARRAY, ARRAY_3D, MIPMAP, KINDS };
typedef struct { enum kind kind; CUdeviceptr address; size_t bytes; void *array; } Held;

static long operations, pause_us;
static size_t largest;
static CUmemoryPool pool;
static atomic_long refused, failed;
static atomic_int broken;

static void wrong(const char *what, CUresult code)
{
    printf("FAIL %s: %d\n", what, code);
    fflush(stdout);
    atomic_store(&broken, 1);
}

/* Whether an allocation succeeded. A refusal must leave its out-parameter as it was. */
static int judge(const char *what, CUresult code, const void *out, size_t size)
{
    if (code == SUCCESS) return 1;
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)out)[i] != UNTOUCHED) { wrong("a refusal wrote its out-parameter", code); wrong(what, code); break; }
    if (code == OUT_OF_MEMORY) atomic_fetch_add(&refused, 1);
    else if (code == INJECTED) atomic_fetch_add(&failed, 1);
    else wrong(what, code);
    return 0;
}
#define TRY(out, call) (memset(&(out), UNTOUCHED, sizeof(out)), judge(#call, (call), &(out), sizeof(out)))

/* Again as often as the machine was told to fail it. */
#define INSIST(code, call) while (((code) = (call)) == INJECTED) atomic_fetch_add(&failed, 1)

/* What was told to fail is still held, and counted. */
static void drop(Held *h, CUstream stream, unsigned *seed)
{
    CUresult code = SUCCESS;
    switch (h->kind) {
    case LINEAR: case MANAGED: case PITCH: code = cuMemFree_v2(h->address); break;
    case ASYNC: case FROM_POOL:
        code = rand_r(seed) % 4 ? cuMemFreeAsync(h->address, stream) : cuMemFree_v2(h->address);
        break;
    case VMM:
        if ((code = cuMemUnmap(h->address, h->bytes)) == SUCCESS)
            INSIST(code, cuMemAddressFree(h->address, h->bytes));
        break;
    case ARRAY: case ARRAY_3D: code = cuArrayDestroy(h->array); break;
    case MIPMAP: code = cuMipmappedArrayDestroy(h->array); break;
    default: break;
    }
    if (code == INJECTED) {
        atomic_fetch_add(&failed, 1);
        return;
    }
    if (code != SUCCESS) wrong("free", code);
    h->kind = NONE;
}

static void make(Held *h, CUstream stream, unsigned *seed)
{
    size_t bytes = 1 + (((size_t)rand_r(seed) << 8) ^ rand_r(seed)) % largest, pitch;
    enum kind kind = LINEAR + rand_r(seed) % (KINDS - 1);
    int made = 0;
    switch (kind) {
    case LINEAR: made = TRY(h->address, cuMemAlloc_v2(&h->address, bytes)); break;
    case MANAGED: made = TRY(h->address, cuMemAllocManaged(&h->address, bytes, 1)); break;
    case PITCH: made = TRY(h->address, cuMemAllocPitch_v2(&h->address, &pitch, bytes / 64 + 1, 64, 4)); break;
    case ASYNC: made = TRY(h->address, cuMemAllocAsync(&h->address, bytes, stream)); break;
    case FROM_POOL: made = TRY(h->address, cuMemAllocFromPoolAsync(&h->address, bytes, pool, stream)); break;
    case VMM: {
        CUmemHandle handle;
        AllocationProp prop = {.type = 1, .location = {1, 0}};
        h->bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
        if (!TRY(handle, cuMemCreate(&handle, h->bytes, &prop, 0))) break;
        CUresult code = cuMemAddressReserve(&h->address, h->bytes, 0, 0, 0);
        if (code != SUCCESS) wrong("reserve", code);
        code = cuMemMap(h->address, h->bytes, 0, handle, 0);
        made = code == SUCCESS;
        if (code == INJECTED) {
            atomic_fetch_add(&failed, 1);
            code = cuMemAddressFree(h->address, h->bytes);
        }
        if (code != SUCCESS) wrong("map", code);
        INSIST(code, cuMemRelease(handle));
        if (code != SUCCESS) wrong("release", code);
        break;
    }
    case ARRAY: {
        ArrayDescriptor d = {bytes / 4096 % 16384 + 1, 1024, 0x20 /* float */, 1};
        made = TRY(h->array, cuArrayCreate_v2((CUarray *)&h->array, &d));
        break;
    }
    case ARRAY_3D: {
        Array3DDescriptor d = {bytes / 16384 % 4096 + 1, 64, 64, 0x20, 1, 0};
        made = TRY(h->array, cuArray3DCreate_v2((CUarray *)&h->array, &d));
        break;
    }
    case MIPMAP: {
        Array3DDescriptor d = {bytes / 4096 % 8192 + 1, 1024, 0, 0x20, 1, 0};
        made = TRY(h->array, cuMipmappedArrayCreate((CUmipmappedArray *)&h->array, &d, 4));
        break;
    }
    default: break;
    }
    h->kind = made ? kind : NONE;
}

static void *run(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    Held held[HELD] = {0};
    CUstream streams[STREAMS];
    size_t free_bytes, total;
    if (cuCtxSetCurrent(context) != SUCCESS) wrong("current", 0);
    for (int i = 0; i < STREAMS; i++)
        if (cuStreamCreate(&streams[i], STREAM_NON_BLOCKING) != SUCCESS) wrong("stream", 0);
    for (long n = 0; (operations == 0 || n < operations) && !atomic_load(&broken); n++) {
        Held *h = &held[rand_r(&seed) % HELD];
        if (pause_us && n % 64 == 63) usleep(pause_us);
        CUstream stream = streams[(h - held) % STREAMS];
        CUresult code;
        switch (rand_r(&seed) % 32) {
        case 0: /* an address of no allocation: the driver refuses, and nothing is credited */
            if ((code = cuMemFree_v2(0x7000000000000000ull + rand_r(&seed))) == SUCCESS) wrong("free of nothing", code);
            break;
        case 1:
            code = cuMemGetInfo_v2(&free_bytes, &total);
            if (code != SUCCESS || free_bytes > total) wrong("free above total", code);
            break;
        case 2: INSIST(code, cuStreamSynchronize(stream)); if (code != SUCCESS) wrong("synchronise", code); break;
        case 3: INSIST(code, cuMemPoolTrimTo(pool, 0)); if (code != SUCCESS) wrong("trim", code); break;
        default: if (h->kind) drop(h, stream, &seed); else make(h, stream, &seed);
        }
    }
    for (int i = 0; i < HELD; i++) while (held[i].kind) drop(&held[i], streams[i % STREAMS], &seed);
    for (int i = 0; i < STREAMS; i++) {
        CUresult code;
        INSIST(code, cuStreamSynchronize(streams[i]));
        if (code != SUCCESS) wrong("synchronise", code);
    }
    return NULL;
}

/* A context, as soon as the others leave room for one. */
static void begin(void)
{
    CUresult code;
    driver_open();
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    while ((code = cuDevicePrimaryCtxRetain(&context, device)) == OUT_OF_MEMORY) usleep(1000);
    OK(code);
    OK(cuCtxSetCurrent(context));
    if (failures) exit(finish("begin"));
}

int main(int argc, char **argv)
{
    operations = atol(argv[1]);
    int threads = atoi(argv[2]);
    unsigned seed = atoi(argv[3]);
    largest = argc > 4 ? strtoull(argv[4], NULL, 0) : 64 << 20;
    if (getenv("STORM_PAUSE_US")) pause_us = atol(getenv("STORM_PAUSE_US"));
    begin();
    PoolProps properties = {.alloc_type = 1, .location = {1, 0}};
    OK(cuMemPoolCreate(&pool, &properties));
    uint64_t keep = ~0ull;
    OK(cuMemPoolSetAttribute(pool, 4 /* release threshold */, &keep));
    printf("started\n");
    fflush(stdout);
    if (getenv("STORM_WAIT")) getchar();
    pthread_t thread[64];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)(seed * 64 + i));
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    OK(cuMemPoolDestroy(pool));
    if (failures || broken) return 1;
    printf("done %ld refused %ld failed %ld\n", operations * threads, refused, failed);
    fflush(stdout);
    if (getenv("STORM_WAIT")) getchar();
    return 0;
}
