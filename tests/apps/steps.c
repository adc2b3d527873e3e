/* Memory of one kind made and given back, between breakpoints, for a tracer that steps through it: steps KIND BYTES.
 * For each line on stdin but the first (of "open" they are handles to open, in hexadecimal) it comes to a breakpoint before the memory
 * is made, one when it is there, and one when it has been given back. The same has been done once before, so that nothing
 * is done for the first time; save for "first", which is the process's first use of the GPU and is made only once.
 * "lend" prints a handle of what it has made, "pass" its PID and a descriptor. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (unsigned char *, CUdeviceptr))                                      \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                   \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))
typedef struct { unsigned char bytes[64]; } IpcHandle;
#include "driver.h"
#include <unistd.h>
#define MARK() __asm__ volatile("int3")
enum { FILE_DESCRIPTOR = 1, LAZY_PEER_ACCESS = 1 };

static CUstream stream;
static CUmemoryPool pool;
static CUdeviceptr address;
static CUmemHandle handle, again;
static CUarray array;
static CUmipmappedArray mipmap;
static CUcontext further;
static IpcHandle opened;
static size_t bytes, pitch;
static int is_open;
static const AllocationProp physical = {.type = 1, .location = {1, 0}};
static const AllocationProp shareable = {.type = 1, .requested_handle_types = FILE_DESCRIPTOR, .location = {1, 0}};

static void linear(void) { OK(cuMemAlloc_v2(&address, bytes)); }
static void managed(void) { OK(cuMemAllocManaged(&address, bytes, 1)); }
static void pitched(void) { OK(cuMemAllocPitch_v2(&address, &pitch, 1000, bytes / 1024, 4)); }
static void async(void) { OK(cuMemAllocAsync(&address, bytes, stream)); }
static void pooled(void) { OK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream)); }
static void create(void) { OK(cuMemCreate(&handle, bytes, &physical, 0)); }
static void make_array(void)
{
    ArrayDescriptor d = {1024, bytes / 4096, 0x20, 1};
    OK(cuArrayCreate_v2(&array, &d));
}
static void make_mipmap(void)
{
    Array3DDescriptor d = {1024, bytes / 8192, 0, 0x20, 1, 0};
    OK(cuMipmappedArrayCreate(&mipmap, &d, 3));
}
static void export(void)
{
    OK(cuMemAlloc_v2(&address, bytes));
    OK(cuIpcGetMemHandle(opened.bytes, address));
}
static void lend(void)
{
    export();
    for (size_t i = 0; i < sizeof(opened); i++) printf("%02x", opened.bytes[i]);
    printf("\n");
    fflush(stdout);
}
/* The exporter may have let go meanwhile. */
static void open_handle(void) { is_open = cuIpcOpenMemHandle_v2(&address, opened, LAZY_PEER_ACCESS) == SUCCESS; }
static void descriptor(void)
{
    int file = -1;
    OK(cuMemCreate(&handle, bytes, &shareable, 0));
    OK(cuMemExportToShareableHandle(&file, handle, FILE_DESCRIPTOR, 0));
    OK(cuMemRelease(handle));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, FILE_DESCRIPTOR));
    close(file);
}
static int passed = -1;
static void pass(void)
{
    OK(cuMemCreate(&handle, bytes, &shareable, 0));
    OK(cuMemExportToShareableHandle(&passed, handle, FILE_DESCRIPTOR, 0));
    printf("%d %d\n", getpid(), passed);
    fflush(stdout);
}
static void release_passed(void) { close(passed); OK(cuMemRelease(handle)); }
static void make_context(void) { OK(cuCtxCreate_v2(&further, 0, device)); }
static void ask(void)
{
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
}
static void nothing(void) {}
static void free_linear(void) { OK(cuMemFree_v2(address)); }
static void free_async(void) { OK(cuMemFreeAsync(address, stream)); OK(cuStreamSynchronize(stream)); }
static void release(void) { OK(cuMemRelease(handle)); }
static void release_import(void) { OK(cuMemRelease(again)); }
static void free_array(void) { OK(cuArrayDestroy(array)); }
static void free_mipmap(void) { OK(cuMipmappedArrayDestroy(mipmap)); }
static void close_handle(void) { if (is_open) OK(cuIpcCloseMemHandle(address)); }
static void end_context(void) { OK(cuCtxDestroy_v2(further)); OK(cuCtxSetCurrent(context)); }

static void first(void)
{
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    linear();
}
static void last(void) { free_linear(); OK(cuDevicePrimaryCtxRelease_v2(device)); }

static const struct { const char *name; void (*make)(void), (*drop)(void); } KINDS[] = {
    {"linear", linear, free_linear}, {"managed", managed, free_linear}, {"pitch", pitched, free_linear},
    {"async", async, free_async}, {"pool", pooled, free_async}, {"create", create, release},
    {"array", make_array, free_array}, {"mipmap", make_mipmap, free_mipmap}, {"info", ask, nothing},
    {"export", export, free_linear}, {"lend", lend, free_linear}, {"pass", pass, release_passed},
    {"open", open_handle, close_handle}, {"descriptor", descriptor, release_import},
    {"context", make_context, end_context}, {"first", first, last},
};

static int read_line(void)
{
    char line[256];
    if (!fgets(line, sizeof(line), stdin)) return 0;
    for (size_t i = 0; i < sizeof(opened) && line[2 * i] != '\n'; i++) sscanf(line + 2 * i, "%2hhx", &opened.bytes[i]);
    return 1;
}

int main(int argc, char **argv)
{
    size_t kind = 0;
    bytes = strtoull(argv[2], NULL, 0);
    while (strcmp(KINDS[kind].name, argv[1])) kind++;
    int is_first = KINDS[kind].make == first;
    read_line();
    if (is_first) {
        driver_open();
    } else {
        PoolProps properties = {.alloc_type = 1, .location = {1, 0}};
        setup();
        OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
        OK(cuMemPoolCreate(&pool, &properties));
        KINDS[kind].make();
        KINDS[kind].drop();
    }
    MARK();
    while (read_line()) {
        MARK();
        KINDS[kind].make();
        MARK();
        KINDS[kind].drop();
        MARK();
        if (is_first) break;
    }
    return finish(argv[1]);
}
