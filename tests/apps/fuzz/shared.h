/* Memory that processes pass to one another, as handles of 64 bytes or as descriptors over sockets; descriptors that are
 * duplicated, kept and closed at any time. */
#ifndef VCUDA_TESTS_FUZZ_SHARED_H
#define VCUDA_TESTS_FUZZ_SHARED_H
#include "own.h"
enum { WITH_IPC, WITH_FILE, WITH_POOL };
typedef struct { int way; size_t bytes; Block block; } Word;

static const char *folder;
static int ear = -1;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static int files[FILES_KEPT];

static struct sockaddr_un address_of(int process)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/%d", folder, process);
    return at;
}
static void listen_to_others(void)
{
    struct sockaddr_un own = address_of(place);
    ear = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unlink(own.sun_path);
    if (bind(ear, (struct sockaddr *)&own, sizeof own)) wrong("bind", 0);
    for (int i = 0; i < FILES_KEPT; i++) files[i] = -1;
}

typedef union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } Control;
/* To a process that may not be there, or may not listen. The descriptor stays the caller's. */
static void tell(unsigned *seed, Word *word, int file)
{
    struct sockaddr_un to = address_of(draw(seed) % PROCESSES);
    struct iovec part = {word, sizeof *word};
    Control control = {{0}};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    }
    /* Several, since most places are empty. */
    for (int i = 0; i < 4 && sendmsg(ear, &message, MSG_DONTWAIT) < 0; i++) to = address_of(draw(seed) % PROCESSES);
}
static int hear(Word *word, int *file)
{
    struct iovec part = {word, sizeof *word};
    Control control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    *file = -1;
    if (recvmsg(ear, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof *word) return 0;
    if (message.msg_controllen) memcpy(file, CMSG_DATA(&control.header), sizeof *file);
    return 1;
}
/* Keeps a descriptor for a while, in the place of another one. */
static void keep_file(unsigned *seed, int file)
{
    int i = draw(seed) % FILES_KEPT;
    pthread_mutex_lock(&files_lock);
    int before = files[i];
    files[i] = file;
    pthread_mutex_unlock(&files_lock);
    if (before >= 0) close(before);
}
static void close_all_files(void)
{
    Word word;
    int file;
    for (int i = 0; i < FILES_KEPT; i++) {
        if (files[i] >= 0) close(files[i]);
        files[i] = -1;
    }
    while (hear(&word, &file))
        if (file >= 0) close(file);
}
/* A duplicate of one that is kept, to keep or to pass on. */
static void double_file(unsigned *seed)
{
    pthread_mutex_lock(&files_lock);
    int file = files[draw(seed) % FILES_KEPT];
    if (file >= 0) file = fcntl(file, F_DUPFD_CLOEXEC, 3);
    pthread_mutex_unlock(&files_lock);
    if (file >= 0) keep_file(seed, file);
}

/* Tells another process of memory that this thread has. */
static void pass_on(Thread *t, Held *h)
{
    Word word = {.bytes = h->bytes};
    int file = -1;
    if (h->kind == LINEAR && families & IPC) {
        word.way = WITH_IPC;
        /* Managed memory cannot be passed on. */
        if (cuIpcGetMemHandle(&word.block, h->address) != SUCCESS) return;
    } else if (h->kind == MAPPED && families & FILES) {
        CUmemHandle handle;
        word.way = WITH_FILE;
        MUST(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)h->address));
        CUresult code = cuMemExportToShareableHandle(&file, handle, 1, 0);
        MUST(cuMemRelease(handle));
        if (code != SUCCESS) return; /* the machine knows only so many objects */
    } else if (h->kind == HANDLE && families & FILES) {
        word.way = WITH_FILE;
        if (cuMemExportToShareableHandle(&file, h->handle, 1, 0) != SUCCESS) return;
    } else if (h->kind == POOLED && families & SHARED_POOLS) {
        int i = draw(&t->seed) % OWN_POOLS;
        word.way = WITH_POOL;
        if (!t->pools[i] || t->is_exported[i] < 0) return;
        if (cuMemPoolExportToShareableHandle(&file, t->pools[i], 1, 0) != SUCCESS) return;
        t->is_exported[i] = 1;
        /* The block may be another pool's. */
        if (cuMemPoolExportPointer(&word.block, h->address) != SUCCESS) {
            close(file);
            return;
        }
    } else {
        return;
    }
    tell(&t->seed, &word, file);
    if (file < 0) return;
    if (one_in(&t->seed, 2)) keep_file(&t->seed, file);
    else close(file);
}

static void open_file(Thread *t, Held *h, int file)
{
    HandleDesc desc = {.type = 1, .size = h->bytes};
    BufferDesc whole = {.size = h->bytes};
    if (families & EXTERNALS && one_in(&t->seed, 2)) {
        desc.handle.fd = fcntl(file, F_DUPFD_CLOEXEC, 3);
        if (cuImportExternalMemory((ExternalMemory *)&h->object, &desc) != SUCCESS) {
            close(desc.handle.fd);
            return;
        }
        MUST(cuExternalMemoryGetMappedBuffer(&h->address, h->object, &whole));
        h->kind = EXTERNAL;
        return;
    }
    if (cuMemImportFromShareableHandle(&h->handle, as_handle(file), 1) != SUCCESS) return;
    h->kind = HANDLE;
    if (one_in(&t->seed, 3)) return;
    h->address = addresses(h->bytes);
    if (SERVED(cuMemMap(h->address, h->bytes, 0, h->handle, 0))) {
        MUST(cuMemRelease(h->handle));
        h->kind = MAPPED;
    }
}
static void open_block(Held *h, Word *word, int file)
{
    CUmemoryPool pool;
    if (cuMemPoolImportFromShareableHandle(&pool, as_handle(file), 1, 0) != SUCCESS) return;
    if (cuMemPoolImportPointer(&h->address, pool, &word->block) == SUCCESS) {
        h->kind = IMPORTED_BLOCK;
        h->object = pool;
    } else {
        MUST(cuMemPoolDestroy(pool));
    }
}
/* Opens what another process told of, if it is still there. */
static void take(Thread *t, Held *h)
{
    Word word;
    int file;
    if (!hear(&word, &file)) return;
    h->bytes = word.bytes;
    switch (word.way) {
    case WITH_IPC:
        if (cuIpcOpenMemHandle_v2(&h->address, word.block, 1) == SUCCESS) h->kind = OPENED;
        break;
    case WITH_FILE: open_file(t, h, file); break;
    case WITH_POOL: open_block(h, &word, file); break;
    }
    if (file < 0) return;
    if (one_in(&t->seed, 3)) tell(&t->seed, &word, file);
    if (one_in(&t->seed, 3)) keep_file(&t->seed, file);
    else close(file);
}

/* A multicast object alone holds the memory that is bound to it, until its handle goes. */
static void use_multicast(Thread *t)
{
    AllocationProp prop = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
    CUmemHandle object, memory;
    size_t bytes = some_pieces(&t->seed);
    MulticastProp group = {.devices = 1, .size = bytes};
    if (!SERVED(cuMemCreate(&memory, bytes, &prop, 0))) return;
    MUST(cuMulticastCreate(&object, &group));
    MUST(cuMulticastAddDevice(object, device));
    MUST(cuMulticastBindMem(object, 0, memory, 0, bytes, 0));
    MUST(cuMemRelease(memory));
    MUST(cuMemRelease(object));
}

/* A child that only has what its parent had open. */
static void fork_child(Thread *t)
{
    unsigned time_us = draw(&t->seed) % 20000;
    pid_t child = fork();
    if (child == 0) {
        usleep(time_us);
        _exit(0);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}
#endif
