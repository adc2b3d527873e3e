/* What every part of the fuzzer of memory operations uses: random numbers, what a thread holds, and the page by which the
 * test steers its processes. */
#ifndef VCUDA_TESTS_FUZZ_BASE_H
#define VCUDA_TESTS_FUZZ_BASE_H
#include <stddef.h>
typedef struct { char bytes[64]; } Block;
typedef struct External *ExternalMemory;
typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} HandleDesc;
typedef struct { unsigned long long offset, size; unsigned flags, reserved[16]; } BufferDesc;
typedef struct { unsigned devices; size_t size; unsigned long long handle_types, flags; } MulticastProp;
typedef struct {
    struct {
        unsigned alloc_type, handle_types;
        struct { unsigned type; int id; } location;
        void *win32;
        size_t max_size;
        unsigned char reserved[56];
    } pool;
    const void *access;
    size_t access_count, bytes;
    unsigned long long address;
} AllocNodeParams;
typedef struct {
    struct { unsigned width, height, depth; } tile;
    unsigned first_tail_level;
    unsigned long long tail_size;
    unsigned flags, reserved[4];
} SparseProperties;
typedef struct {
    unsigned resource_type;
    void *resource;
    unsigned subresource_type;
    union {
        struct { unsigned level, layer, x, y, z, width, height, depth; } level;
        struct { unsigned layer; unsigned long long offset, size; } tail;
    } part;
    unsigned operation, handle_type;
    unsigned long long handle, offset;
    unsigned devices, flags, reserved[2];
} MapInfo;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (CUdevice, CUmemoryPool))                                         \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (CUmemHandle *, void *))                        \
    X(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, (MapInfo *, unsigned, CUstream))                                  \
    X(cuArrayGetSparseProperties, cuArrayGetSparseProperties, 11010, (SparseProperties *, CUarray))                    \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                                           \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocNodeParams *))                                        \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))                                                   \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (Block *, CUdeviceptr))                                              \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, Block, unsigned))                              \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                   \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))             \
    X(cuImportExternalMemory, cuImportExternalMemory, 10000, (ExternalMemory *, const HandleDesc *))                   \
    X(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000,                                         \
      (CUdeviceptr *, ExternalMemory, const BufferDesc *))                                                             \
    X(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (ExternalMemory))                                       \
    X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020,                                       \
      (void *, CUmemoryPool, int, unsigned long long))                                                                 \
    X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020,                                   \
      (CUmemoryPool *, void *, int, unsigned long long))                                                               \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (Block *, CUdeviceptr))                                   \
    X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, (CUdeviceptr *, CUmemoryPool, Block *))                   \
    X(cuMulticastCreate, cuMulticastCreate, 12010, (CUmemHandle *, const MulticastProp *))                             \
    X(cuMulticastAddDevice, cuMulticastAddDevice, 12010, (CUmemHandle, CUdevice))                                      \
    X(cuMulticastBindMem, cuMulticastBindMem, 12010,                                                                   \
      (CUmemHandle, size_t, CUmemHandle, size_t, size_t, unsigned long long))
#include "../driver.h"
#include <fcntl.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A kernel that spins, and no variable: the simulated driver takes nothing for such code. */
static const char CODE[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry vcuda_spin_ns(.param .u64 ns)\n{\n  ret;\n}\n";

/* What may be done; a run is told which of them. */
enum {
    LINEARS = 1, POOLS = 2, PHYSICAL = 4, ARRAYS = 8, GRAPHS = 16, IPC = 32, FILES = 64, EXTERNALS = 128, SHARED_POOLS = 256,
    CONTEXTS = 512, FORKS = 1024, MULTICASTS = 2048, SIGNALS = 4096
};
enum { THREADS = 4, HELD = 16, HANDLER_HELD = 4, STREAMS = 3, OWN_POOLS = 4, FILES_KEPT = 24, PROCESSES = 16 };
#define MIB ((size_t)1 << 20)
/* The granularity of physical memory. */
#define PIECE (2 * MIB)

/* The page, in a file that the test maps too. */
enum { RUN, PARK, END, ASK };
typedef struct {
    _Atomic uint32_t command, signals;
    struct { _Atomic uint32_t parked, has_ended; _Atomic uint64_t done, refused; } of[PROCESSES];
} Page;
static Page *page;
static int place;
static unsigned families;

/* xorshift32: a seed is never 0. */
static unsigned draw(unsigned *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}
static int one_in(unsigned *seed, unsigned n) { return draw(seed) % n == 0; }
/* Mostly some MiB, at times a few bytes, at times much. */
static size_t some_bytes(unsigned *seed)
{
    unsigned kind = draw(seed) % 16;
    size_t most = kind == 0 ? 4096 : kind < 14 ? 48 * MIB : kind == 14 ? 200 * MIB : 700 * MIB;
    return 1 + (((size_t)draw(seed) << 8) ^ draw(seed)) % most;
}
static size_t some_pieces(unsigned *seed) { return (some_bytes(seed) / PIECE + 1) * PIECE; }

static void wrong(const char *what, CUresult code)
{
    printf("FAIL %s: %d (%s)\n", what, code, code_name(code));
    fflush(stdout);
    _exit(1);
}
/* Whether an allocation was served. It may be refused for want of memory, and for nothing else. */
static int served(const char *what, CUresult code)
{
    if (code == OUT_OF_MEMORY) page->of[place].refused++;
    else if (code != SUCCESS) wrong(what, code);
    return code == SUCCESS;
}
#define SERVED(call) served(#call, call)
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult got_ = (call);                                                                                        \
        if (got_ != SUCCESS) wrong(#call, got_);                                                                       \
    } while (0)

/* A free that waits for the device is refused while another thread records a graph, and comes again. */
#define INSIST(call)                                                                                                   \
    do {                                                                                                               \
        CUresult got_;                                                                                                 \
        while ((got_ = (call)) == CAPTURE_UNSUPPORTED) usleep(10);                                                     \
        if (got_ != SUCCESS) wrong(#call, got_);                                                                       \
    } while (0)

/* Something that a thread holds. */
enum kind {
    NOTHING, LINEAR, POOLED, MAPPED, HANDLE, ARRAY, MIPMAP, SPARSE, GRAPH, OPENED, IMPORTED_BLOCK, EXTERNAL
};
typedef struct {
    enum kind kind;
    CUdeviceptr address;
    size_t bytes;
    CUmemHandle handle;
    void *object;
} Held;
typedef struct {
    unsigned seed;
    CUstream streams[STREAMS];
    CUmemoryPool pools[OWN_POOLS];
    int is_exported[OWN_POOLS];
    Held held[HELD];
    /* Of signal handlers. */
    pthread_t id;
    volatile unsigned long calls; /* launches that may wait, odd within one */
    unsigned long calls_before;
    unsigned handler_seed;
    Held handler_held[HANDLER_HELD];
    sigjmp_buf top;
} Thread;
static Thread threads[THREADS];

static CUstream some_stream(Thread *t) { return t->streams[draw(&t->seed) % STREAMS]; }
static void *as_handle(int file) { return (void *)(intptr_t)file; }
#endif
