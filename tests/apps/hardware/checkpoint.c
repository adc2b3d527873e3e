/* What moving a process's GPU state to host memory does: how long each step takes, what is free afterwards, which calls of the
 * process wait meanwhile, whether contents and addresses are as before, and what is refused.
 *   checkpoint [MEMORY_MIB [CASE]]    docs/hardware.md, "checkpoint of a process" */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream, CUcontext *))                                                   \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (CUmemoryPool *, CUdevice))
#include "nvml.h"
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

typedef struct { unsigned timeout_ms, reserved; uint64_t more[7]; } LockArguments;
typedef struct { uint64_t reserved[8]; } Arguments;
static CUresult (*get_state)(int, int *), (*lock)(int, LockArguments *), (*checkpoint)(int, Arguments *), (*restore)(int, Arguments *),
    (*unlock)(int, Arguments *);
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { PLAIN, MANAGED, BUSY, NO_CONTEXT };

/* A call that the process makes while its GPU state is away. */
typedef struct { volatile int code, thread; volatile double began, ended; } Probe;
#define PROBES(X)                                                                                                      \
    X(driver_get_version, cuDriverGetVersion(&number))                                                                 \
    X(init, cuInit(0))                                                                                                 \
    X(device_get_count, cuDeviceGetCount(&number))                                                                     \
    X(device_get_attribute, cuDeviceGetAttribute(&number, 16, device))                                                 \
    X(device_total_mem, cuDeviceTotalMem_v2(&size, device))                                                            \
    X(ctx_get_current, cuCtxGetCurrent(&asked))                                                                        \
    X(ctx_set_current, cuCtxSetCurrent(context))                                                                       \
    X(ctx_get_device, cuCtxGetDevice(&number))                                                                         \
    X(ctx_synchronize, cuCtxSynchronize())                                                                             \
    X(mem_get_info, cuMemGetInfo_v2(&size, &total))                                                                    \
    X(mem_alloc, cuMemAlloc_v2(&pointer, MIB))                                                                         \
    X(mem_alloc_host, cuMemAllocHost_v2(&host, MIB))                                                                   \
    X(memcpy_to_host, cuMemcpyDtoH_v2(&size, data, 8))                                                                 \
    X(launch, launch(work, NULL, 1))                                                                                   \
    X(stream_query, cuStreamQuery(stream))                                                                             \
    X(stream_synchronize, cuStreamSynchronize(stream))                                                                 \
    X(stream_is_capturing, cuStreamIsCapturing(stream, &number))                                                       \
    X(stream_get_ctx, cuStreamGetCtx(stream, &asked))                                                                  \
    X(stream_create, cuStreamCreate(&other, 1))                                                                        \
    X(exchange_mode, cuThreadExchangeStreamCaptureMode(&number))                                                       \
    X(event_query, cuEventQuery(event))                                                                                \
    X(event_record, cuEventRecord(event, stream))                                                                      \
    X(event_elapsed, cuEventElapsedTime(&ms, event, later))                                                            \
    X(event_create, cuEventCreate(&made, 0))                                                                           \
    X(pool_attribute, cuMemPoolGetAttribute(pool, 5, &held))                                                           \
    X(ctx_create, cuCtxCreate_v2(&asked, 0, device))
#define X(name, call) PROBE_##name,
enum { PROBES(X) COUNT };
#undef X
#define X(name, call) #name,
static const char *const PROBE_NAMES[] = {PROBES(X)};
#undef X
/* The calls that a process makes: from the first to before the last. */
typedef struct { int first, last; } Range;
static const Range NO_PROBES = {0, 0}, ALL_PROBES = {0, COUNT};
static struct Shared {
    volatile int stage, done, intact, next, ready;
    volatile double waited_us;
    Probe probes[64];
} *shared;

static void share(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) exit(1);
}

static CUstream stream;
static CUevent event, later;
static CUdeviceptr data;
static CUmemoryPool pool;
static size_t bytes;

static void *probe(void *argument)
{
    Probe *own = argument;
    int number = 0;
    size_t size, total;
    CUcontext asked;
    CUdeviceptr pointer;
    CUstream other;
    CUevent made;
    void *host;
    float ms;
    uint64_t held;
    OK(cuCtxSetCurrent(context));
    own->thread = (int)syscall(SYS_gettid);
    __sync_fetch_and_add(&shared->ready, 1);
    while (shared->stage == 0) usleep(200);
    own->began = now_us();
    switch (own - shared->probes) {
#define X(name, call) case PROBE_##name: own->code = call; break;
        PROBES(X)
#undef X
    }
    own->ended = now_us();
    return NULL;
}
static int is_intact(void)
{
    static uint32_t host[1 << 20];
    for (size_t at = 0; at < bytes; at += sizeof host) {
        memset(host, 0, sizeof host);
        if (cuMemcpyDtoH_v2(host, data + at, sizeof host)) return 0;
        for (size_t i = 0; i < sizeof host / 4; i++)
            if (host[i] != 0x5eed0000u + (uint32_t)(at >> 22)) return 0;
    }
    return 1;
}
/* The process whose state is moved. */
static _Noreturn void target(int kind, int ready, Range probes)
{
    static pthread_t threads[COUNT];
    char byte = 1;
    CUdeviceptr managed;
    if (kind == NO_CONTEXT) {
        driver_open();
        OK(cuInit(0));
    } else {
        setup();
        OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
        OK(cuEventCreate(&event, 0));
        OK(cuEventCreate(&later, 0));
        OK(cuDeviceGetMemPool(&pool, device));
        OK(cuMemAlloc_v2(&data, bytes));
        for (size_t at = 0; at < bytes; at += 4 * MIB) {
            static uint32_t host[1 << 20];
            for (size_t i = 0; i < sizeof host / 4; i++) host[i] = 0x5eed0000u + (uint32_t)(at >> 22);
            OK(cuMemcpyHtoD_v2(data + at, host, sizeof host));
        }
        OK(cuEventRecord(event, stream));
        OK(cuEventRecord(later, stream));
        OK(cuCtxSynchronize());
    }
    if (kind == MANAGED) {
        OK(cuMemAllocManaged(&managed, 64 * MIB, 1));
        OK(cuMemsetD8_v2(managed, 1, 64 * MIB));
        OK(cuCtxSynchronize());
    }
    if (kind == BUSY) OK(launch(spin, stream, 1500000000));
    for (int i = probes.first; i < probes.last; i++) pthread_create(&threads[i], NULL, probe, &shared->probes[i]);
    while (shared->ready < probes.last - probes.first) usleep(1000);
    if (write(ready, &byte, 1) != 1 || failures) _exit(1);
    if (kind == BUSY) OK(cuStreamSynchronize(stream));
    while (shared->stage < 2) usleep(200);
    for (int i = probes.first; i < probes.last; i++) pthread_join(threads[i], NULL);
    double begin = now_us();
    if (kind != NO_CONTEXT) {
        shared->intact = is_intact();
        OK(launch(work, stream, 1));
        OK(cuEventRecord(later, stream));
        OK(cuStreamSynchronize(stream));
    }
    shared->waited_us = now_us() - begin;
    shared->done = failures ? 2 : 1;
    for (;;) pause();
}
static pid_t begin(int kind, Range probes)
{
    int ends[2];
    char byte;
    if (pipe(ends)) exit(1);
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    if (pid == 0) target(kind, ends[1], probes);
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1) {
        int status = 0;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip("no device");
        printf("FAIL the process could not begin\n");
        exit(1);
    }
    close(ends[0]);
    return pid;
}
static void tell_state(const char *what, pid_t pid);
static void end(pid_t pid);
/* This process asks the driver only once the other has begun: a driver that is started is no good in a forked child. */
static pid_t begin_and_open(int kind, Range probes)
{
    pid_t pid = begin(kind, probes);
    int state = 0;
    tell_state("state_without_init", pid);
    driver_open();
    OK(cuInit(0));
    if (get_state(pid, &state) == NOT_SUPPORTED) {
        end(pid);
        skip("this driver has no checkpoints");
    }
    nvml_open();
    return pid;
}
static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
static char case_name[64];
static void tell(const char *what, double value, const char *unit)
{
    char name[96];
    snprintf(name, sizeof name, "%s_%s", case_name, what);
    report(name, value, unit);
}
/* Makes a call, tells its status and how long it took. */
#define STEP(what, call)                                                                                               \
    ({                                                                                                                 \
        double from_ = now_us();                                                                                       \
        int code_ = (call);                                                                                            \
        tell(what "_took", (now_us() - from_) / 1e3, "ms");                                                            \
        tell(what, code_, "CUresult");                                                                                 \
        code_;                                                                                                         \
    })
static void tell_state(const char *what, pid_t pid)
{
    int state = -1;
    int code = get_state(pid, &state);
    tell(what, code ? -code : state, "state");
}
static double resident(pid_t pid)
{
    char path[64];
    long pages = 0, all;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}
static double listed_bytes(pid_t pid)
{
    static NvmlProcess all[512];
    unsigned count = 512;
    if (nvmlDeviceGetComputeRunningProcesses_v3(nvml_device, &count, all)) return -2;
    for (unsigned i = 0; i < count; i++)
        if (all[i].pid == (unsigned)pid) return (double)all[i].used;
    return -1;
}
static void tell_memory(const char *when, pid_t pid)
{
    char name[48];
    snprintf(name, sizeof name, "gpu_%s", when), tell(name, (double)gpu_used(), "bytes");
    snprintf(name, sizeof name, "listed_%s", when), tell(name, listed_bytes(pid), "bytes");
    snprintf(name, sizeof name, "resident_%s", when), tell(name, resident(pid), "bytes");
}
/* What the kernel says of a thread: which call of the system it is in, where it sleeps, how long it ran. */
static void tell_thread(pid_t pid, const char *thread, const char *name)
{
    static const char *const files[] = {"comm", "wchan", "syscall", "schedstat"};
    printf("thread %s %s:", case_name, name);
    for (int i = 0; i < 4; i++) {
        char path[320], said[256];
        snprintf(path, sizeof path, "/proc/%d/task/%s/%s", (int)pid, thread, files[i]);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(said, sizeof said, file)) strcpy(said, "-");
        if (file) fclose(file);
        said[strcspn(said, "\n")] = 0;
        printf(" %s [%s]", files[i], said);
    }
    printf("\n");
}
/* All threads of the process: those that wait in a call, by its name, and the others, most of them the driver's. */
static void tell_threads(pid_t pid, Range probes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *name = "other";
        if (entry->d_name[0] == '.') continue;
        for (int i = probes.first; i < probes.last; i++)
            if (shared->probes[i].thread == atoi(entry->d_name)) name = PROBE_NAMES[i];
        tell_thread(pid, entry->d_name, name);
    }
    if (folder) closedir(folder);
}
/* Begins the probes at once, and notes which of them ended within half a second. */
static void let_probe(pid_t pid, Range probes)
{
    shared->stage = 1;
    usleep(500000);
    for (int i = probes.first; i < probes.last; i++)
        if (shared->probes[i].ended > 0) shared->probes[i].began = -1;
    tell_threads(pid, probes);
}
static void tell_probes(Range probes)
{
    char name[64];
    for (int i = probes.first; i < probes.last; i++) {
        snprintf(name, sizeof name, "%s_waited", PROBE_NAMES[i]), tell(name, shared->probes[i].began >= 0, "boolean");
        snprintf(name, sizeof name, "%s_code", PROBE_NAMES[i]), tell(name, shared->probes[i].code, "CUresult");
    }
}
/* Waits for the process to go on, and tells what became of it. */
static void tell_end(pid_t pid)
{
    int status = 0;
    shared->stage = 2;
    for (int i = 0; i < 5000 && !shared->done && waitpid(pid, &status, WNOHANG) == 0; i++) usleep(1000);
    tell("done", shared->done, "status");
    tell("ended_by_signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0, "signal");
    tell("intact", shared->intact, "boolean");
    if (!WIFSIGNALED(status)) end(pid);
}
/* Once round or several: locks, copies, restores, unlocks. */
static void move(const char *name, int kind, int rounds)
{
    LockArguments lock_arguments = {.timeout_ms = 10000};
    Arguments none = {{0}};
    snprintf(case_name, sizeof case_name, "%s", name);
    pid_t pid = begin_and_open(kind, NO_PROBES);
    if (kind == BUSY) {
        lock_arguments.timeout_ms = 100;
        STEP("lock_in_100ms", lock(pid, &lock_arguments));
        tell_state("state_after_late_lock", pid);
        lock_arguments.timeout_ms = 10000;
    }
    tell_state("state_before", pid);
    tell_memory("before", pid);
    for (int round = 0; round < rounds; round++) {
        if (STEP("lock", lock(pid, &lock_arguments))) break;
        tell_state("state_locked", pid);
        if (!STEP("checkpoint", checkpoint(pid, &none))) {
            tell_state("state_checkpointed", pid);
            tell_memory("checkpointed", pid);
            STEP("restore", restore(pid, &none));
            tell_state("state_restored", pid);
        }
        STEP("unlock", unlock(pid, &none));
    }
    tell_state("state_after", pid);
    tell_memory("after", pid);
    tell_end(pid);
}
/* A process that makes those calls while it is locked, or while its state is away. */
static void call_meanwhile(const char *name, Range probes, int is_away)
{
    LockArguments lock_arguments = {.timeout_ms = 10000};
    Arguments none = {{0}};
    snprintf(case_name, sizeof case_name, "%s", name);
    pid_t pid = begin_and_open(PLAIN, probes);
    if (STEP("lock", lock(pid, &lock_arguments)) || (is_away && STEP("checkpoint", checkpoint(pid, &none)))) exit(1);
    let_probe(pid, probes);
    if (is_away) STEP("restore", restore(pid, &none));
    STEP("unlock", unlock(pid, &none));
    tell_end(pid);
    tell_probes(probes);
}
/* One process for each call, as a call can end its process. */
static void call_one_by_one(void)
{
    for (int i = 0; i < COUNT; i++) {
        if (fork() == 0) {
            char name[64];
            share();
            snprintf(name, sizeof name, "away_%s", PROBE_NAMES[i]);
            call_meanwhile(name, (Range){i, i + 1}, 1);
            exit(failures != 0);
        }
    }
    for (int i = 0, status; i < COUNT; i++)
        if (wait(&status) > 0 && status == 77 << 8) exit(77);
}
/* A restore without room, then one with room. */
static void without_room(void)
{
    LockArguments lock_arguments = {.timeout_ms = 10000};
    Arguments none = {{0}};
    snprintf(case_name, sizeof case_name, "without_room");
    pid_t pid = begin_and_open(PLAIN, NO_PROBES);
    if (!STEP("lock", lock(pid, &lock_arguments)) && !STEP("checkpoint", checkpoint(pid, &none))) {
        CUdeviceptr blocks[8192];
        int count = 0;
        setup();
        while (count < 8192 && cuMemAlloc_v2(&blocks[count], 64 * MIB) == SUCCESS) count++;
        tell("filled", (double)count * 64 * MIB, "bytes");
        STEP("restore_full", restore(pid, &none));
        tell_state("state_after_full", pid);
        while (count) OK(cuMemFree_v2(blocks[--count]));
        STEP("restore_again", restore(pid, &none));
        tell_state("state_after_again", pid);
        STEP("unlock", unlock(pid, &none));
    }
    tell_end(pid);
}
#define IN_CHILD(name, call)                                                                                              \
    if (!only || !strcmp(only, name)) {                                                                                \
        int status_ = 0;                                                                                               \
        pid_t pid_ = fork();                                                                                           \
        if (pid_ == 0) {                                                                                               \
            share();                                                                                                   \
            call;                                                                                                      \
            exit(failures != 0);                                                                                       \
        }                                                                                                              \
        waitpid(pid_, &status_, 0);                                                                                    \
        if (WIFEXITED(status_) && WEXITSTATUS(status_) == 77) exit(77);                                                \
        if (status_) failures++;                                                                                       \
    }
int main(int argc, char **argv)
{
    const char *only = argc > 2 ? argv[2] : NULL;
    bytes = (argc > 1 ? strtoull(argv[1], NULL, 0) : 512) * MIB;
    get_state = (CUresult(*)(int, int *))optional("cuCheckpointProcessGetState");
    lock = (CUresult(*)(int, LockArguments *))optional("cuCheckpointProcessLock");
    checkpoint = (CUresult(*)(int, Arguments *))optional("cuCheckpointProcessCheckpoint");
    restore = (CUresult(*)(int, Arguments *))optional("cuCheckpointProcessRestore");
    unlock = (CUresult(*)(int, Arguments *))optional("cuCheckpointProcessUnlock");
    if (!get_state || !lock || !checkpoint || !restore || !unlock) skip("this driver has no checkpoints");
    IN_CHILD("plain", move("plain", PLAIN, 2));
    IN_CHILD("locked", call_meanwhile("locked", ALL_PROBES, 0));
    IN_CHILD("away", call_one_by_one());
    IN_CHILD("busy", move("busy", BUSY, 1));
    IN_CHILD("no_context", move("no_context", NO_CONTEXT, 1));
    IN_CHILD("managed", move("managed", MANAGED, 1));
    IN_CHILD("without_room", without_room());
    return failures != 0;
}
