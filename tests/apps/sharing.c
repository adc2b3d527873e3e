/* One of several processes that share memory, told what to do: sharing ADDRESS. ADDRESS is a path at which it hears of the
 * others. Commands on stdin, each answered with a line, "done" or the refusal's
 * name:
 *   make KIND MIB     allocates
 *   send ADDRESS      tells the process there of what was made, as often as it is asked
 *   take              opens what it was told of
 *   again             opens the same once more
 *   twice             two threads open it at the same moment, memory of cuMemAlloc only
 *   let               lets go of what was opened last
 *   free              frees what was made
 *   later             frees the pool's piece that was made when the default stream gets there, which waits for "now"
 *   now               has the stream go on, and waits for it
 *   forget            closes the descriptor that it was told of
 *   read              checks that everything opened can be read: "good"
 *   used              bytes, by cuMemGetInfo
 *   export COUNT      makes blocks of 2 MiB, exports each as a descriptor and closes that: how many, until one is refused
 *   unexport          frees the last of them
 * KIND is ipc, file (cuMemExportToShareableHandle), external (the same file, imported as external memory), pool (pool and
 * pointer) or multicast (as file, and held by a multicast object alone, in each process by its own). */
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
#define EXTRA_FUNCTIONS(X)                                                                                             \
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
#include "driver.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
enum { IPC, FILE_HANDLE, EXTERNAL, POOL, MULTICAST, KINDS, MOST = 8, EXPORTS = 2000, WORD = 0x5eed5eed };
static const char *const NAMES[KINDS] = {"ipc", "file", "external", "pool", "multicast"};
/* What one process tells the other; a descriptor comes beside it. */
typedef struct { int kind; size_t size; Block block; } Word;

static Word made, told;
static int made_file = -1, told_file = -1, ear, opened;
static CUdeviceptr made_at, opened_at[MOST];
static CUmemHandle made_handle, opened_handle[MOST];
static CUmemoryPool made_pool, opened_pool[MOST];
static ExternalMemory opened_external[MOST];
static void *as_handle(int fd) { return (void *)(intptr_t)fd; }
static struct sockaddr_un address(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    return at;
}
typedef union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } Control;
static void send_to(const char *path)
{
    struct sockaddr_un to = address(path);
    struct iovec part = {&made, sizeof made};
    Control control = {{0}};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    if (made_file >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof made_file);
        memcpy(CMSG_DATA(&control.header), &made_file, sizeof made_file);
    }
    CHECK(sendmsg(ear, &message, 0) == sizeof made);
}
static void hear(void)
{
    struct iovec part = {&told, sizeof told};
    Control control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    CHECK(recvmsg(ear, &message, MSG_CMSG_CLOEXEC) == sizeof told);
    if (told_file >= 0) close(told_file);
    told_file = -1;
    if (message.msg_controllen) memcpy(&told_file, CMSG_DATA(&control.header), sizeof told_file);
}
/* Addresses for a handle. */
static CUdeviceptr mapped(CUmemHandle handle, size_t size)
{
    CUdeviceptr at = 0;
    AccessDesc access = {{1, 0}, 3};
    OK(cuMemAddressReserve(&at, size, 0, 0, 0));
    OK(cuMemMap(at, size, 0, handle, 0));
    OK(cuMemSetAccess(at, size, &access, 1));
    return at;
}
static void unmap(CUdeviceptr at, size_t size)
{
    OK(cuMemUnmap(at, size));
    OK(cuMemAddressFree(at, size));
}
/* A multicast object takes the place of the handle and its mapping. */
static void hand_to_object(CUdeviceptr *at, CUmemHandle *handle, size_t size)
{
    MulticastProp prop = {.devices = 1, .size = size};
    CUmemHandle object = 0;
    OK(cuMulticastCreate(&object, &prop));
    OK(cuMulticastAddDevice(object, device));
    OK(cuMulticastBindMem(object, 0, *handle, 0, size, 0));
    unmap(*at, size);
    OK(cuMemRelease(*handle));
    *handle = object;
    *at = mapped(object, size);
}
static const AllocationProp PROP = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
static CUmemHandle exports[EXPORTS];
static int exported;
/* The block of a refused export is freed. A block is shared as long as its handle lives, without its descriptor. */
static int export(int count)
{
    CUresult code = SUCCESS;
    int before = exported;
    while (!code && exported < before + count && exported < EXPORTS) {
        int file = -7;
        OK(cuMemCreate(&exports[exported], 2 << 20, &PROP, 0));
        code = cuMemExportToShareableHandle(&file, exports[exported], 1, 0);
        if (code) {
            EXPECT(OUT_OF_MEMORY, code);
            CHECK(file == -7);
            OK(cuMemRelease(exports[exported]));
        } else {
            close(file);
            exported++;
        }
    }
    return exported - before;
}
static CUresult make(int kind, size_t size)
{
    static const PoolProps POOL_PROP = {.alloc_type = 1, .handle_types = 1, .location = {1, 0}};
    CUresult code;
    made = (Word){.kind = kind, .size = size};
    switch (kind) {
    case IPC:
        if ((code = cuMemAlloc_v2(&made_at, size))) return code;
        OK(cuIpcGetMemHandle(&made.block, made_at));
        break;
    case POOL:
        OK(cuMemPoolCreate(&made_pool, &POOL_PROP));
        if ((code = cuMemAllocFromPoolAsync(&made_at, size, made_pool, NULL))) {
            OK(cuMemPoolDestroy(made_pool));
            return code;
        }
        OK(cuCtxSynchronize());
        OK(cuMemPoolExportToShareableHandle(&made_file, made_pool, 1, 0));
        OK(cuMemPoolExportPointer(&made.block, made_at));
        break;
    default:
        if ((code = cuMemCreate(&made_handle, size, &PROP, 0))) return code;
        made_at = mapped(made_handle, size);
        OK(cuMemExportToShareableHandle(&made_file, made_handle, 1, 0));
    }
    OK(cuMemsetD32_v2(made_at, WORD, size / 4));
    OK(cuCtxSynchronize());
    if (kind == MULTICAST) hand_to_object(&made_at, &made_handle, size);
    return SUCCESS;
}
static sem_t gate;
static void wait_for_now(void *unused)
{
    while (sem_wait(&gate)) {}
}
static void free_later(void)
{
    sem_init(&gate, 0, 0);
    OK(cuLaunchHostFunc(NULL, wait_for_now, NULL));
    OK(cuMemFreeAsync(made_at, NULL));
}
static void free_now(void)
{
    sem_post(&gate);
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(made_pool));
    close(made_file);
    made_file = -1;
}
static void free_made(void)
{
    switch (made.kind) {
    case IPC: OK(cuMemFree_v2(made_at)); break;
    case POOL:
        OK(cuMemFreeAsync(made_at, NULL));
        OK(cuCtxSynchronize());
        OK(cuMemPoolDestroy(made_pool));
        break;
    default:
        unmap(made_at, made.size);
        OK(cuMemRelease(made_handle));
    }
    if (made_file >= 0) close(made_file);
    made_file = -1;
}
static CUresult take(void)
{
    CUresult code = SUCCESS;
    int i = opened;
    HandleDesc desc = {.type = 1, .size = told.size};
    BufferDesc whole = {.size = told.size};
    if (i == MOST) exit(2);
    switch (told.kind) {
    case IPC: code = cuIpcOpenMemHandle_v2(&opened_at[i], told.block, 1); break;
    case POOL:
        OK(cuMemPoolImportFromShareableHandle(&opened_pool[i], as_handle(told_file), 1, 0));
        code = cuMemPoolImportPointer(&opened_at[i], opened_pool[i], &told.block);
        if (code) OK(cuMemPoolDestroy(opened_pool[i]));
        break;
    case EXTERNAL:
        desc.handle.fd = dup(told_file);
        if ((code = cuImportExternalMemory(&opened_external[i], &desc))) close(desc.handle.fd);
        else OK(cuExternalMemoryGetMappedBuffer(&opened_at[i], opened_external[i], &whole));
        break;
    default:
        code = cuMemImportFromShareableHandle(&opened_handle[i], as_handle(told_file), 1);
        if (!code) opened_at[i] = mapped(opened_handle[i], told.size);
        if (!code && told.kind == MULTICAST) hand_to_object(&opened_at[i], &opened_handle[i], told.size);
    }
    if (!code) opened++;
    return code;
}
static pthread_barrier_t together;
static void *open_together(void *place)
{
    OK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    OK(cuIpcOpenMemHandle_v2(place, told.block, 1));
    return NULL;
}
static void take_twice(void)
{
    pthread_t threads[2];
    if (opened + 2 > MOST) exit(2);
    pthread_barrier_init(&together, NULL, 2);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, open_together, &opened_at[opened + i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    opened += 2;
}
static void let(void)
{
    int i = --opened;
    switch (told.kind) {
    case IPC: OK(cuIpcCloseMemHandle(opened_at[i])); break;
    case POOL:
        OK(cuMemFreeAsync(opened_at[i], NULL));
        OK(cuCtxSynchronize());
        OK(cuMemPoolDestroy(opened_pool[i]));
        break;
    case EXTERNAL:
        OK(cuMemFree_v2(opened_at[i]));
        OK(cuDestroyExternalMemory(opened_external[i]));
        break;
    default:
        unmap(opened_at[i], told.size);
        OK(cuMemRelease(opened_handle[i]));
    }
}
static int is_good(void)
{
    /* Plain loads of a multicast object's addresses mean nothing. */
    for (int i = 0; i < opened && told.kind != MULTICAST; i++) {
        unsigned first = 0, last = 0;
        OK(cuMemcpyDtoH_v2(&first, opened_at[i], 4));
        OK(cuMemcpyDtoH_v2(&last, opened_at[i] + told.size - 4, 4));
        if (first != WORD || last != WORD) return 0;
    }
    return 1;
}
int main(int argc, char **argv)
{
    char line[512], word[256];
    unsigned mib;
    struct sockaddr_un own = address(argc > 1 ? argv[1] : "");
    setvbuf(stdout, NULL, _IOLBF, 0);
    setup();
    ear = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unlink(own.sun_path);
    if (bind(ear, (struct sockaddr *)&own, sizeof own)) return 2;
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        CUresult code = SUCCESS;
        const char *answer = "done";
        if (sscanf(line, "make %255s %u", word, &mib) == 2) {
            for (int kind = 0; kind < KINDS; kind++)
                if (!strcmp(word, NAMES[kind])) code = make(kind, (size_t)mib << 20);
        } else if (sscanf(line, "send %255s", word) == 1) {
            send_to(word);
        } else if (!strcmp(line, "take\n")) {
            hear();
            code = take();
        } else if (!strcmp(line, "twice\n")) {
            take_twice();
        } else if (!strcmp(line, "again\n")) {
            code = take();
        } else if (!strcmp(line, "let\n")) {
            let();
        } else if (!strcmp(line, "forget\n")) {
            if (told_file >= 0) close(told_file);
            told_file = -1;
        } else if (!strcmp(line, "free\n")) {
            free_made();
        } else if (!strcmp(line, "later\n")) {
            free_later();
        } else if (!strcmp(line, "now\n")) {
            free_now();
        } else if (!strcmp(line, "read\n")) {
            answer = is_good() ? "good" : "other words";
        } else if (sscanf(line, "export %u", &mib) == 1) {
            sprintf(word, "%d", export((int)mib));
            answer = word;
        } else if (!strcmp(line, "unexport\n")) {
            OK(cuMemRelease(exports[--exported]));
        } else if (!strcmp(line, "used\n")) {
            size_t left = 0, total = 0;
            OK(cuMemGetInfo_v2(&left, &total));
            sprintf(word, "%zu", total - left);
            answer = word;
        } else {
            return 2;
        }
        printf("%s\n", code ? code_name(code) : failures ? "FAILED" : answer);
    }
    return finish("sharing");
}
