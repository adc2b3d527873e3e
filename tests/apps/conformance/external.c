/* Memory of other interfaces. CUDA Driver API: "External Resource Interoperability".
 * A memory file stands for what Vulkan would export: only the simulator takes one. What a real driver takes beside Vulkan's
 * descriptors is open; those of cuMemExportToShareableHandle are tried. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuImportExternalMemory, cuImportExternalMemory, 10000, (ExternalMemory *, const HandleDesc *))                   \
    X(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000,                                         \
      (CUdeviceptr *, ExternalMemory, const BufferDesc *))                                                             \
    X(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000,                         \
      (CUmipmappedArray *, ExternalMemory, const void *))                                                        \
    X(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (ExternalMemory))                                       \
    X(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, (CUarray *, CUmipmappedArray, unsigned))               \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long))
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
#include "answers.h"
#include "second.h"
#include <sys/mman.h>
#include <sys/stat.h>
enum { OPAQUE_FD = 1, OPAQUE_WIN32 = 2, UNKNOWN = 999 };
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
/* Whether a number is still that file's: another thread's file may have it by now. */
static int is_still(int fd, const struct stat *file)
{
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == file->st_dev && now.st_ino == file->st_ino;
}

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
    meet(), meet(); /* the other has let go */
    CHECK(word(p) == 0x33333333);
    CHECK(free_bytes() == before);
    OK(cuMemFree_v2(p));
    EXPECT(INVALID_VALUE, cuMemFree_v2(p));
    OK(cuDestroyExternalMemory(memory));
    CHECK(free_bytes() == before + SIZE);
    meet();
    return finish("external importer");
}

/* Tries to import a copy of a descriptor, and tells the answer and whether the copy is still open. Even where the import
 * fails the driver may close it, and its number may be another file's at once: so each call gets a copy of its own. */
static int is_copy_open;
static CUresult tried(const char *name, HandleDesc desc)
{
    ExternalMemory memory = NULL;
    struct stat file;
    if (desc.handle.fd >= 0) desc.handle.fd = dup(desc.handle.fd);
    int is_file = fstat(desc.handle.fd, &file) == 0;
    CUresult code = cuImportExternalMemory(&memory, &desc);
    is_copy_open = is_file && is_still(desc.handle.fd, &file);
    printf("external_%s %d CUresult\nexternal_%s_open %d boolean\n", name, code, name, is_copy_open);
    if (code == SUCCESS) OK(cuDestroyExternalMemory(memory));
    else if (is_copy_open) close(desc.handle.fd);
    return code;
}
/* `fd`: of SIZE bytes of memory. */
static void refusals(int fd)
{
    ExternalMemory memory = NULL;
    size_t alone = free_bytes();
    int no_memory = memfd_create("empty", MFD_CLOEXEC);
    HandleDesc desc = described(fd, SIZE);
    EXPECT(INVALID_VALUE, cuImportExternalMemory(&memory, NULL));
    desc.type = 0;
    EXPECT(INVALID_VALUE, tried("type_0", desc));
    desc.type = OPAQUE_WIN32;
    CHECK(tried("win32", desc) != SUCCESS);
    EXPECT(INVALID_VALUE, tried("size_0", described(fd, 0)));
    CHECK(tried("too_large", described(fd, 2 * SIZE)) != SUCCESS || !is_simulated());
    desc = described(fd, SIZE);
    desc.flags = 2;
    CHECK(tried("flags_2", desc) != SUCCESS || !is_simulated());
    EXPECT(UNKNOWN, tried("no_descriptor", described(-1, SIZE)));
    EXPECT(UNKNOWN, tried("no_memory", described(no_memory, SIZE)));
    CHECK(!is_copy_open);
    EXPECT(INVALID_VALUE, cuDestroyExternalMemory(NULL));
    CHECK(free_bytes() == alone);
    close(no_memory);
}

/* Buffers and mipmaps of imported memory that begins and ends with these words. Ends it. */
static void mapped(ExternalMemory memory, unsigned first, unsigned last)
{
    CUdeviceptr p = 0, q = 0;
    size_t before = free_bytes();
    BufferDesc part = {.offset = 0, .size = SIZE};
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, NULL, &part));
    if (is_simulated()) {
        EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(NULL, memory, &part));
        EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, memory, NULL));
    }
    part.flags = 1;
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    part = (BufferDesc){.offset = 4096, .size = SIZE};
    EXPECT(INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    if (p) OK(cuMemFree_v2(p));
    part = (BufferDesc){.offset = 0, .size = SIZE};
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    part = (BufferDesc){.offset = SIZE - 512, .size = 512};
    OK(cuExternalMemoryGetMappedBuffer(&q, memory, &part));
    CHECK(word(p) == first && word(q + 508) == last);
    CHECK(free_bytes() == before); /* buffers cost nothing */
    MipmapDesc levels = {.offset = 0, .array = {64, 64, 0, 32 /* float */, 1, 0}, .levels = 3};
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL;
    if (told("external_mipmap", cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &levels)) == SUCCESS) {
        OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
        CHECK(free_bytes() == before);
        OK(cuMipmappedArrayDestroy(mipmap));
    }
    levels.array.Width = levels.array.Height = 16384;
    CHECK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &levels) != SUCCESS); /* too large */
    CHECK(word(p) == first);
    OK(cuMemFree_v2(q));
    if (is_simulated()) { /* a buffer outlives the object, which has ended once */
        OK(cuDestroyExternalMemory(memory));
        EXPECT(INVALID_HANDLE, cuDestroyExternalMemory(memory));
        EXPECT(INVALID_HANDLE, cuExternalMemoryGetMappedBuffer(&q, memory, &part));
        CHECK(word(p) == first && free_bytes() == before);
        OK(cuMemFree_v2(p));
    } else {
        OK(cuMemFree_v2(p));
        OK(cuDestroyExternalMemory(memory));
    }
}

/* Two processes with the memory of one file. */
static void two_processes(const char *program, int file)
{
    ExternalMemory memory = NULL, again = NULL;
    CUdeviceptr p = 0;
    size_t alone = free_bytes();
    int copy = dup(file);
    struct stat status;
    CHECK(fstat(file, &status) == 0);
    start_second(program, "importer");
    meet();
    size_t before = free_bytes();
    HandleDesc desc = described(file, SIZE);
    BufferDesc part = {.offset = 0, .size = SIZE};
    OK(cuImportExternalMemory(&memory, &desc));
    CHECK(!is_still(file, &status)); /* it is CUDA's now */
    CHECK(free_bytes() == before - SIZE);
    desc = described(dup(copy), SIZE);
    OK(cuImportExternalMemory(&again, &desc)); /* the same memory */
    CHECK(free_bytes() == before - SIZE);
    mapped(again, 0x11111111, 0x22222222);
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    say("f", 1, copy);
    close(copy);
    meet();
    CHECK(word(p) == 0x33333333);
    OK(cuMemFree_v2(p));
    OK(cuDestroyExternalMemory(memory));
    CHECK(free_bytes() == before - SIZE); /* the other process holds it */
    meet(), meet();
    end_second();
    CHECK(free_becomes(alone));
}

/* What this driver exported can be imported this way too; it counts once. */
static void exported_here(void)
{
    AllocationProp prop = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    ExternalMemory memory = NULL;
    CUmemHandle handle = 0;
    CUdeviceptr at = 0;
    size_t alone = free_bytes();
    struct stat file;
    int fd = -1, copy;
    OK(cuMemCreate(&handle, SIZE, &prop, 0));
    OK(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    OK(cuMemMap(at, SIZE, 0, handle, 0));
    OK(cuMemSetAccess(at, SIZE, &access, 1));
    OK(cuMemsetD32_v2(at, 0x55555555, SIZE / 4));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(at, SIZE));
    OK(cuMemAddressFree(at, SIZE));
    OK(cuMemExportToShareableHandle(&fd, handle, 1, 0));
    refusals(fd);
    copy = dup(fd);
    CHECK(fstat(copy, &file) == 0);
    HandleDesc desc = described(copy, SIZE);
    int is_imported = told("external_import_of_exported", cuImportExternalMemory(&memory, &desc)) == SUCCESS;
    tell("external_import_of_exported_open", (unsigned long long)is_still(copy, &file), "boolean");
    CHECK(is_imported || !is_simulated());
    if (!is_imported && is_still(copy, &file)) close(copy);
    CHECK(free_bytes() == alone - SIZE);
    OK(cuMemRelease(handle));
    close(fd);
    if (is_imported) {
        CHECK(free_bytes() == alone - SIZE);
        mapped(memory, 0x55555555, 0x55555555);
    }
    CHECK(free_becomes(alone));
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "importer")) return importer();
    setup();
    if (is_simulated()) {
        int file = memfd_create("vulkan", MFD_CLOEXEC);
        unsigned words[2] = {0x11111111, 0x22222222};
        CHECK(file >= 0 && ftruncate(file, SIZE) == 0);
        CHECK(pwrite(file, &words[0], 4, 0) == 4 && pwrite(file, &words[1], 4, SIZE - 4) == 4);
        two_processes(argv[0], file);
    }
    exported_here();
    return finish("external");
}
