/* Memory of cuMemAlloc shared by IPC handles. CUDA Driver API: "Memory Management", cuIpc*. The figures of free memory
 * are exact if no other process uses the GPU. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (IpcHandle *, CUdeviceptr))                                          \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                   \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, CUdeviceptr))
typedef struct { char bytes[64]; } IpcHandle;
#include "../driver.h"
#include "answers.h"
#include "second.h"
enum { LAZY_PEER = 1, IPC_CAPABLE = 10, RANGE_START = 11, RANGE_SIZE = 12, MEMORY_TYPE = 2 };
#define SIZE (64ul << 20)

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
    IpcHandle handle, garbage;
    CUdeviceptr p = 0, q = 0, own = 0;
    memset(&garbage, 0x5a, sizeof garbage);
    hear(&handle, sizeof handle);
    EXPECT(INVALID_VALUE, cuIpcOpenMemHandle_v2(&p, handle, 0));
    /* Unknown flags beside this one are ignored. */
    OK(cuIpcOpenMemHandle_v2(&p, handle, 7));
    OK(cuIpcCloseMemHandle(p));
    p = 0;
    if (told("ipc_open_flags_2", cuIpcOpenMemHandle_v2(&q, handle, 2)) == SUCCESS) OK(cuIpcCloseMemHandle(q));
    CHECK(cuIpcOpenMemHandle_v2(&p, garbage, LAZY_PEER) != SUCCESS);
    CHECK(p == 0);
    size_t before = free_bytes();
    OK(cuIpcOpenMemHandle_v2(&p, handle, LAZY_PEER));
    OK(cuIpcOpenMemHandle_v2(&q, handle, LAZY_PEER)); /* counted; the same address */
    CHECK(p && p == q);
    CHECK(free_bytes() == before); /* physical memory counts once */
    CHECK(word(p) == 0x11111111 && word(p + SIZE - 4) == 0x22222222);
    CUdeviceptr start = 0;
    size_t size = 0;
    unsigned type = 0;
    OK(cuMemGetAddressRange_v2(&start, &size, p + 100));
    CHECK(start == p && size >= SIZE);
    OK(cuPointerGetAttribute(&start, RANGE_START, p + 100));
    OK(cuPointerGetAttribute(&type, MEMORY_TYPE, p + 100));
    CHECK(start == p && type == 2 /* device */);
    EXPECT(INVALID_VALUE, cuMemFree_v2(p)); /* must be closed */
    OK(cuMemAlloc_v2(&own, 1 << 20));
    EXPECT(INVALID_VALUE, cuIpcCloseMemHandle(own));
    EXPECT(INVALID_VALUE, cuIpcCloseMemHandle(p + 4096));
    OK(cuMemsetD32_v2(p, 0x33333333, 1));
    OK(cuCtxSynchronize());
    meet(); /* the exporter reads what was written here */
    meet(); /* and has written more */
    CHECK(word(p + 4) == 0x44444444);
    OK(cuIpcCloseMemHandle(p));
    CHECK(word(p) == 0x33333333); /* opened twice */
    OK(cuIpcCloseMemHandle(q));
    EXPECT(INVALID_VALUE, cuIpcCloseMemHandle(q));
    CHECK(cuMemcpyDtoH_v2(&type, p, 4) != SUCCESS);
    OK(cuIpcOpenMemHandle_v2(&p, handle, LAZY_PEER)); /* and again */
    CHECK(word(p + 4) == 0x44444444);
    meet(); /* the exporter frees, or is killed by its end: the memory stays for this one */
    meet();
    CHECK(word(p) == 0x33333333);
    OK(cuIpcCloseMemHandle(p));
    CHECK(cuIpcOpenMemHandle_v2(&p, handle, LAZY_PEER) != SUCCESS); /* gone */
    meet();
    meet();
    return finish("ipc importer");
}

static int holder(void)
{
    be_second();
    setup();
    IpcHandle handle;
    CUdeviceptr p = 0;
    hear(&handle, sizeof handle);
    OK(cuIpcOpenMemHandle_v2(&p, handle, LAZY_PEER));
    meet();
    pause();
    return 0;
}

static int maker(void)
{
    be_second();
    setup();
    IpcHandle handle;
    CUdeviceptr p = 0;
    OK(cuMemAlloc_v2(&p, SIZE));
    OK(cuMemsetD32_v2(p, 0x55555555, SIZE / 4));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&handle, p));
    say(&handle, sizeof handle, -1);
    pause();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "importer")) return importer();
    if (argc > 1 && !strcmp(argv[1], "holder")) return holder();
    if (argc > 1 && !strcmp(argv[1], "maker")) return maker();
    setup();
    size_t alone = free_bytes();
    start_second(argv[0], "importer");
    meet();
    IpcHandle handle, same, next;
    CUdeviceptr p = 0, q = 0;
    unsigned char capable = 9;
    size_t before = free_bytes();
    OK(cuMemAlloc_v2(&p, SIZE));
    OK(cuMemsetD32_v2(p, 0x11111111, 1));
    OK(cuMemsetD32_v2(p + SIZE - 4, 0x22222222, 1));
    OK(cuPointerGetAttribute(&capable, IPC_CAPABLE, p));
    CHECK(capable == 1);
    EXPECT(INVALID_VALUE, cuIpcGetMemHandle(NULL, p));
    EXPECT(INVALID_VALUE, cuIpcGetMemHandle(&handle, 0));
    EXPECT(INVALID_VALUE, cuIpcGetMemHandle(&handle, 4096));
    OK(cuIpcGetMemHandle(&handle, p));
    OK(cuIpcGetMemHandle(&same, p));
    CHECK(!memcmp(&handle, &same, sizeof handle));
    CHECK(free_bytes() + SIZE <= before);
    CHECK(word(p) == 0x11111111 && word(p + SIZE - 4) == 0x22222222); /* what was there stays */
    EXPECT(INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&q, handle, LAZY_PEER)); /* in the exporting process */
    EXPECT(INVALID_VALUE, cuIpcCloseMemHandle(p));
    CUdeviceptr pooled = 0;
    OK(cuMemAllocAsync(&pooled, 1 << 20, NULL));
    EXPECT(INVALID_VALUE, cuIpcGetMemHandle(&same, pooled));
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuCtxSynchronize());
    say(&handle, sizeof handle, -1);
    meet();
    CHECK(word(p) == 0x33333333);
    OK(cuMemsetD32_v2(p + 4, 0x44444444, 1));
    OK(cuCtxSynchronize());
    meet();
    meet(); /* opened once more */
    size_t shared = free_bytes();
    OK(cuMemFree_v2(p));
    CHECK(free_bytes() == shared); /* the importer holds it */
    OK(cuMemAlloc_v2(&q, SIZE));
    OK(cuIpcGetMemHandle(&next, q));
    CHECK(memcmp(&handle, &next, sizeof handle)); /* another allocation, another handle */
    OK(cuMemFree_v2(q));
    CHECK(free_bytes() == shared);
    meet();
    meet();
    CHECK(free_bytes() == shared + SIZE);
    meet();
    end_second();
    /* An importer that is killed keeps nothing. */
    CHECK(free_becomes(alone));
    OK(cuMemAlloc_v2(&p, SIZE));
    OK(cuIpcGetMemHandle(&handle, p));
    shared = free_bytes();
    start_second(argv[0], "holder");
    say(&handle, sizeof handle, -1);
    meet();
    kill_second();
    CHECK(free_becomes(shared));
    OK(cuMemFree_v2(p));
    CHECK(free_becomes(alone));
    /* An exporter that is killed while this process has the memory open. */
    start_second(argv[0], "maker");
    hear(&handle, sizeof handle);
    OK(cuIpcOpenMemHandle_v2(&p, handle, LAZY_PEER));
    CHECK(word(p) == 0x55555555);
    kill_second();
    CHECK(word(p + SIZE - 4) == 0x55555555);
    CHECK(free_becomes(alone - SIZE));
    CHECK(cuIpcOpenMemHandle_v2(&q, handle, LAZY_PEER) == SUCCESS && q == p);
    OK(cuIpcCloseMemHandle(q));
    OK(cuIpcCloseMemHandle(p));
    CHECK(free_becomes(alone));
    return finish("ipc");
}
