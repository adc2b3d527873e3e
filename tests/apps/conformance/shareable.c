/* Physical memory shared by file descriptors. CUDA Driver API: "Virtual Memory Management". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))             \
    X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020,                           \
      (AllocationProp *, CUmemHandle))                                                                                 \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (CUmemHandle *, void *))                        \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, CUdeviceptr))
#include "../driver.h"
#include "answers.h"
#include "second.h"
enum { FILE_DESCRIPTOR = 1, WIN32 = 2, FABRIC = 8, ALLOWED_HANDLE_TYPES = 14 };
#define UNMAPPED ((void *)16)
#define SIZE (64ul << 20)
static const AllocationProp SHAREABLE = {
    .type = 1 /* pinned */, .requested_handle_types = FILE_DESCRIPTOR, .location = {1 /* device */, 0}};

static void *as_handle(int fd) { return (void *)(intptr_t)fd; }

static unsigned word(CUdeviceptr at)
{
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, at, sizeof value));
    return value;
}

static CUdeviceptr mapped(CUmemHandle handle)
{
    CUdeviceptr at = 0;
    AccessDesc access = {{1, 0}, 3 /* read-write */};
    OK(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    OK(cuMemMap(at, SIZE, 0, handle, 0));
    OK(cuMemSetAccess(at, SIZE, &access, 1));
    return at;
}

static void unmap(CUdeviceptr at)
{
    OK(cuMemUnmap(at, SIZE));
    OK(cuMemAddressFree(at, SIZE));
}

static int exported(CUmemHandle handle)
{
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, handle, FILE_DESCRIPTOR, 0));
    CHECK(fd >= 0);
    return fd;
}

static int importer(void)
{
    be_second();
    setup();
    meet();
    char byte;
    int fd = hear(&byte, 1);
    CHECK(fd >= 0);
    CUmemHandle handle = 0, again = 0;
    size_t before = free_bytes();
    EXPECT(INVALID_VALUE, cuMemImportFromShareableHandle(NULL, as_handle(fd), FILE_DESCRIPTOR));
    CHECK(cuMemImportFromShareableHandle(&handle, as_handle(fd), WIN32) != SUCCESS);
    CHECK(cuMemImportFromShareableHandle(&handle, as_handle(0), FILE_DESCRIPTOR) != SUCCESS); /* a socket */
    CHECK(cuMemImportFromShareableHandle(&handle, as_handle(-1), FILE_DESCRIPTOR) != SUCCESS);
    CHECK(handle == 0);
    OK(cuMemImportFromShareableHandle(&handle, as_handle(fd), FILE_DESCRIPTOR));
    OK(cuMemImportFromShareableHandle(&again, as_handle(fd), FILE_DESCRIPTOR));
    close(fd); /* the descriptor stays the caller's */
    CHECK(cuMemImportFromShareableHandle(&again, as_handle(fd), FILE_DESCRIPTOR) != SUCCESS);
    OK(cuMemRelease(again));
    AllocationProp prop = {0};
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    /* On an H200 they are not all as its maker gave them. */
    tell("imported_type", prop.type, "CUmemAllocationType");
    tell("imported_handle_types", prop.requested_handle_types, "CUmemAllocationHandleType");
    tell("imported_location_type", prop.location.type, "CUmemLocationType");
    tell("imported_location_id", (unsigned)prop.location.id, "ordinal");
    int further = -1;
    if (told("imported_exported_again", cuMemExportToShareableHandle(&further, handle, FILE_DESCRIPTOR, 0)) == SUCCESS)
        close(further);
    CUdeviceptr at = mapped(handle);
    CHECK(free_bytes() == before);
    CHECK(word(at) == 0x11111111 && word(at + SIZE - 4) == 0x22222222);
    OK(cuMemsetD32_v2(at, 0x33333333, 1));
    OK(cuCtxSynchronize());
    meet();
    meet(); /* the exporter has let go of all */
    CHECK(word(at) == 0x33333333 && word(at + 4) == 0x44444444);
    OK(cuMemRelease(handle));
    CHECK(word(at) == 0x33333333); /* still mapped */
    unmap(at);
    EXPECT(INVALID_VALUE, cuMemRelease(handle));
    meet();
    meet();
    return finish("shareable importer");
}

static int maker(void)
{
    be_second();
    setup();
    CUmemHandle handle = 0;
    OK(cuMemCreate(&handle, SIZE, &SHAREABLE, 0));
    OK(cuMemsetD32_v2(mapped(handle), 0x55555555, SIZE / 4));
    OK(cuCtxSynchronize());
    say("f", 1, exported(handle));
    pause();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "importer")) return importer();
    if (argc > 1 && !strcmp(argv[1], "maker")) return maker();
    driver_open();
    /* Not initialised: refused before either pointer is touched. */
    CUmemHandle handle = 0, other_handle = 0;
    EXPECT(NOT_INITIALIZED, cuMemImportFromShareableHandle(UNMAPPED, as_handle(0), FILE_DESCRIPTOR));
    EXPECT(NOT_INITIALIZED, cuMemImportFromShareableHandle(&handle, UNMAPPED, FABRIC));
    EXPECT(NOT_INITIALIZED, cuMemImportFromShareableHandle(&handle, NULL, FABRIC));
    EXPECT(NOT_INITIALIZED, cuMemExportToShareableHandle(UNMAPPED, handle, FABRIC, 0));
    CHECK(handle == 0);
    setup();
    AllocationProp plain = SHAREABLE;
    plain.requested_handle_types = 0;
    int fd = -1;
    size_t alone = free_bytes();
    OK(cuMemCreate(&handle, SIZE, &plain, 0));
    EXPECT(INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, FILE_DESCRIPTOR, 0)); /* not requested */
    OK(cuMemRelease(handle));
    EXPECT(INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, FILE_DESCRIPTOR, 0));
    OK(cuMemCreate(&handle, SIZE, &SHAREABLE, 0));
    CHECK(free_bytes() == alone - SIZE);
    EXPECT(INVALID_VALUE, cuMemExportToShareableHandle(NULL, handle, FILE_DESCRIPTOR, 0));
    EXPECT(INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, FILE_DESCRIPTOR, 1));
    EXPECT(INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, WIN32, 0));
    EXPECT(INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, 0, 0));
    CHECK(fd == -1);
    /* In one process. */
    fd = exported(handle);
    OK(cuMemImportFromShareableHandle(&other_handle, as_handle(fd), FILE_DESCRIPTOR));
    CHECK(free_bytes() == alone - SIZE);
    OK(cuMemRelease(other_handle));
    /* A descriptor alone keeps the memory. */
    OK(cuMemRelease(handle));
    OK(cuMemImportFromShareableHandle(&handle, as_handle(fd), FILE_DESCRIPTOR));
    close(fd);
    CHECK(free_bytes() == alone - SIZE);
    OK(cuMemRelease(handle));
    CHECK(free_bytes() == alone);
    /* Two processes. */
    start_second(argv[0], "importer");
    meet();
    size_t before = free_bytes();
    OK(cuMemCreate(&handle, SIZE, &SHAREABLE, 0));
    CUdeviceptr at = mapped(handle);
    unsigned long long types = 0;
    OK(cuPointerGetAttribute(&types, ALLOWED_HANDLE_TYPES, at));
    CHECK(types == FILE_DESCRIPTOR);
    OK(cuMemsetD32_v2(at, 0x11111111, 1));
    OK(cuMemsetD32_v2(at + SIZE - 4, 0x22222222, 1));
    OK(cuCtxSynchronize());
    fd = exported(handle);
    say("f", 1, fd);
    close(fd);
    meet();
    CHECK(free_bytes() == before - SIZE);
    CHECK(word(at) == 0x33333333);
    OK(cuMemsetD32_v2(at + 4, 0x44444444, 1));
    OK(cuCtxSynchronize());
    OK(cuMemRelease(handle));
    unmap(at);
    CHECK(free_bytes() == before - SIZE); /* the importer holds it */
    meet();
    meet();
    CHECK(free_bytes() == before);
    meet();
    end_second();
    CHECK(free_becomes(alone));
    /* The exporter is killed: first with nothing but the descriptor left, then with a handle here. */
    char byte;
    start_second(argv[0], "maker");
    fd = hear(&byte, 1);
    kill_second();
    OK(cuMemImportFromShareableHandle(&handle, as_handle(fd), FILE_DESCRIPTOR));
    close(fd);
    at = mapped(handle);
    CHECK(word(at) == 0x55555555 && word(at + SIZE - 4) == 0x55555555);
    CHECK(free_becomes(alone - SIZE));
    unmap(at);
    OK(cuMemRelease(handle));
    CHECK(free_becomes(alone));
    return finish("shareable");
}
