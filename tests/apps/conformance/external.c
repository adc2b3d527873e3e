/* Memory of other interfaces, and descriptors of address ranges. CUDA Driver API: "External Resource Interoperability".
 * A memory file stands for what Vulkan would export: only the simulator takes one; a real driver takes the descriptors of
 * cuMemExportToShareableHandle alone. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuImportExternalMemory, cuImportExternalMemory, 10000, (ExternalMemory *, const HandleDesc *))                   \
    X(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000,                                         \
      (CUdeviceptr *, ExternalMemory, const BufferDesc *))                                                             \
    X(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000,                         \
      (CUmipmappedArray *, ExternalMemory, const void *))                                                        \
    X(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (ExternalMemory))                                       \
    X(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, (CUarray *, CUmipmappedArray, unsigned))               \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,                                             \
      (void *, CUdeviceptr, size_t, int, unsigned long long))
typedef struct External *ExternalMemory;
typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} HandleDesc;
typedef struct { unsigned long long offset, size; unsigned flags, reserved[16]; } BufferDesc;
#include "../driver.h"
typedef struct { unsigned long long offset; Array3DDescriptor array; unsigned levels, reserved[16]; } MipmapDesc;
#include "second.h"
#include <sys/mman.h>
enum { OPAQUE_FD = 1, OPAQUE_WIN32 = 2, DMA_BUF = 1 };
#define SIZE (64ul << 20)
_Static_assert(sizeof(HandleDesc) == 104 && sizeof(BufferDesc) == 88 && sizeof(MipmapDesc) == 120, "as in C");

static unsigned word(CUdeviceptr at)
{
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, at, sizeof value));
    return value;
}
static HandleDesc described(int fd, size_t size)
{
    HandleDesc desc = {.type = OPAQUE_FD, .size = size};
    desc.handle.fd = fd;
    return desc;
}
static int is_open(int fd) { return write(fd, "", 0) == 0 || errno != EBADF; }

static int importer(void)
{
    be_second();
    setup();
    meet();
    char byte;
    ExternalMemory memory = NULL;
    CUdeviceptr p = 0;
    HandleDesc desc = described(hear(&byte, 1), SIZE);
    BufferDesc part = {.offset = 0, .size = SIZE};
    size_t before = free_bytes();
    OK(cuImportExternalMemory(&memory, &desc));
    CHECK(free_bytes() == before); /* the other process has it already */
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    CHECK(word(p) == 0x11111111 && word(p + SIZE - 4) == 0x22222222);
    OK(cuMemsetD32_v2(p, 0x33333333, 1));
    OK(cuCtxSynchronize());
    meet();
    meet(); /* the other has let go */
    CHECK(word(p) == 0x33333333);
    CHECK(free_bytes() == before);
    OK(cuMemFree_v2(p));
    EXPECT(INVALID_VALUE, cuMemFree_v2(p));
    OK(cuDestroyExternalMemory(memory));
    CHECK(free_bytes() == before + SIZE);
    meet();
    return finish("external importer");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "importer")) return importer();
    setup();
    ExternalMemory memory = NULL, again = NULL;
    CUdeviceptr p = 0, q = 0;
    size_t alone = free_bytes();
    int file = memfd_create("vulkan", MFD_CLOEXEC), copy;
    unsigned words[2] = {0x11111111, 0x22222222};
    CHECK(file >= 0 && ftruncate(file, SIZE) == 0);
    CHECK(pwrite(file, &words[0], 4, 0) == 4 && pwrite(file, &words[1], 4, SIZE - 4) == 4);
    HandleDesc desc = described(file, SIZE);
    EXPECT(INVALID_VALUE, cuImportExternalMemory(NULL, &desc));
    EXPECT(INVALID_VALUE, cuImportExternalMemory(&memory, NULL));
    desc.type = 0;
    EXPECT(INVALID_VALUE, cuImportExternalMemory(&memory, &desc));
    desc.type = OPAQUE_WIN32;
    CHECK(cuImportExternalMemory(&memory, &desc) != SUCCESS);
    desc = described(file, 0);
    EXPECT(INVALID_VALUE, cuImportExternalMemory(&memory, &desc));
    desc = described(file, SIZE + 1);
    CHECK(cuImportExternalMemory(&memory, &desc) != SUCCESS);
    desc = described(-1, SIZE);
    CHECK(cuImportExternalMemory(&memory, &desc) != SUCCESS);
    desc = described(file, SIZE);
    desc.flags = 2;
    CHECK(cuImportExternalMemory(&memory, &desc) != SUCCESS);
    CHECK(memory == NULL && is_open(file) && free_bytes() == alone);
    EXPECT(INVALID_HANDLE, cuDestroyExternalMemory(NULL));
    copy = dup(file);
    start_second(argv[0], "importer");
    meet();
    size_t before = free_bytes();
    desc = described(file, SIZE);
    OK(cuImportExternalMemory(&memory, &desc));
    CHECK(!is_open(file)); /* it is CUDA's now */
    CHECK(free_bytes() == before - SIZE);
    desc = described(dup(copy), SIZE);
    OK(cuImportExternalMemory(&again, &desc)); /* the same memory */
    CHECK(free_bytes() == before - SIZE);
    OK(cuDestroyExternalMemory(again));
    EXPECT(INVALID_HANDLE, cuDestroyExternalMemory(again));
    BufferDesc part = {.offset = 0, .size = SIZE};
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(NULL, memory, &part));
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, memory, NULL));
    EXPECT(INVALID_HANDLE, cuExternalMemoryGetMappedBuffer(&p, again, &part));
    part.flags = 1;
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    part = (BufferDesc){.offset = 4096, .size = SIZE};
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    part = (BufferDesc){.offset = 0, .size = SIZE};
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    part = (BufferDesc){.offset = SIZE - 512, .size = 512};
    OK(cuExternalMemoryGetMappedBuffer(&q, memory, &part));
    CHECK(word(p) == 0x11111111 && word(q + 508) == 0x22222222);
    CHECK(free_bytes() == before - SIZE); /* buffers cost nothing */
    MipmapDesc levels = {.offset = 0, .array = {64, 64, 0, 32 /* float */, 1, 0}, .levels = 3};
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL;
    OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &levels));
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    CHECK(free_bytes() == before - SIZE);
    OK(cuMipmappedArrayDestroy(mipmap));
    levels.array.Width = levels.array.Height = 16384;
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &levels)); /* too large */
    CHECK(word(p) == 0x11111111);
    say("f", 1, copy);
    close(copy);
    meet();
    CHECK(word(p) == 0x33333333);
    OK(cuMemFree_v2(q));
    OK(cuMemFree_v2(p));
    OK(cuDestroyExternalMemory(memory));
    CHECK(free_bytes() == before - SIZE); /* the other process holds it */
    meet();
    meet();
    end_second();
    CHECK(free_becomes(alone));
    /* What this driver exported can be imported this way too; it counts once. */
    AllocationProp prop = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
    CUmemHandle handle = 0;
    int fd = -1;
    OK(cuMemCreate(&handle, SIZE, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, 1, 0));
    desc = described(fd, SIZE);
    OK(cuImportExternalMemory(&memory, &desc));
    CHECK(free_bytes() == alone - SIZE);
    OK(cuMemRelease(handle));
    OK(cuDestroyExternalMemory(memory));
    CHECK(free_bytes() == alone);
    /* A descriptor for other drivers. */
    OK(cuMemAlloc_v2(&p, SIZE));
    OK(cuMemsetD32_v2(p, 0x44444444, 1));
    OK(cuCtxSynchronize());
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(NULL, p, SIZE, DMA_BUF, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p, SIZE, 9, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p, 100, DMA_BUF, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p + 100, 4096, DMA_BUF, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p, 2 * SIZE, DMA_BUF, 0));
    OK(cuMemGetHandleForAddressRange(&fd, p, SIZE, DMA_BUF, 0));
    CHECK(is_open(fd) && free_bytes() == alone - SIZE && word(p) == 0x44444444);
    close(fd);
    OK(cuMemFree_v2(p));
    CHECK(free_bytes() == alone);
    return finish("external");
}
