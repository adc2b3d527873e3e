/* A process moves the GPU state of another one to the memory of the host and back. CUDA Driver API: "CUDA Checkpointing". On
 * a GPU it needs the rights of ptrace(2) over the other process. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuCheckpointProcessGetRestoreThreadId, cuCheckpointProcessGetRestoreThreadId, 12080, (int, int *))               \
    X(cuCheckpointProcessGetState, cuCheckpointProcessGetState, 12080, (int, int *))                                   \
    X(cuCheckpointProcessLock, cuCheckpointProcessLock, 12080, (int, LockArguments *))                                 \
    X(cuCheckpointProcessCheckpoint, cuCheckpointProcessCheckpoint, 12080, (int, Arguments *))                         \
    X(cuCheckpointProcessRestore, cuCheckpointProcessRestore, 12080, (int, Arguments *))                               \
    X(cuCheckpointProcessUnlock, cuCheckpointProcessUnlock, 12080, (int, Arguments *))
typedef struct { unsigned timeout_ms, reserved0; unsigned long long reserved1[7]; } LockArguments;
typedef struct { unsigned long long reserved[8]; } Arguments;
#include "../driver.h"
#include "second.h"
#include <pthread.h>
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
#define SIZE (8ul << 20)

static volatile int is_allocated;
static void *allocate(void *place)
{
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(place, SIZE));
    is_allocated = 1;
    return NULL;
}
static int is_intact(CUdeviceptr data)
{
    static unsigned host[SIZE / 4];
    OK(cuMemcpyDtoH_v2(host, data, SIZE));
    for (size_t i = 0; i < SIZE / 4; i++)
        if (host[i] != 0x12345678) return 0;
    return 1;
}
/* The process whose state is moved. */
static int target(void)
{
    CUdeviceptr data = 0, late = 0, managed = 0;
    CUstream stream;
    CUevent event;
    pthread_t thread;
    int number = -1;
    be_second();
    setup();
    OK(cuMemAlloc_v2(&data, SIZE));
    OK(cuMemsetD32_v2(data, 0x12345678, SIZE / 4));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, EVENT_DISABLE_TIMING));
    OK(cuCtxSynchronize());
    meet(); /* locked between these */
    meet();
    pthread_create(&thread, NULL, allocate, &late);
    OK(cuDeviceGetCount(&number)); /* answers all the while */
    usleep(100000);
    CHECK(!is_allocated);
    meet(); /* moved to the host between these */
    meet();
    usleep(100000);
    CHECK(!is_allocated);
    OK(cuDeviceGetCount(&number));
    meet(); /* moved back and unlocked between these */
    meet();
    pthread_join(thread, NULL);
    CHECK(is_allocated && late != data);
    CHECK(is_intact(data));
    OK(cuMemFree_v2(late));
    OK(cuEventRecord(event, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuEventQuery(event));
    OK(cuMemAllocManaged(&managed, SIZE, 1));
    OK(cuMemsetD8_v2(managed, 1, SIZE));
    OK(cuCtxSynchronize());
    meet(); /* refused between these */
    meet();
    CHECK(is_intact(data));
    OK(cuMemFree_v2(managed));
    fflush(stdout);
    meet();
    if (failures) _exit(1);
    for (;;) pause();
}
#define EXPECT_STATE(expected)                                                                                         \
    do {                                                                                                               \
        int state_ = -1;                                                                                               \
        OK(cuCheckpointProcessGetState(second, &state_));                                                              \
        CHECK(state_ == (expected));                                                                                   \
    } while (0)
int main(int argc, char **argv)
{
    LockArguments in_time = {.timeout_ms = 10000};
    Arguments none = {{0}};
    int thread = 0, state = -1;
    char path[64];
    if (argc > 1) return target();
    start_second(argv[0], "target");
    driver_open();
    meet();
    EXPECT_STATE(RUNNING); /* before this process's cuInit, too */
    OK(cuInit(0));
    OK(cuCheckpointProcessGetRestoreThreadId(second, &thread));
    snprintf(path, sizeof path, "/proc/%d/task/%d", (int)second, thread);
    CHECK(access(path, F_OK) == 0);
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessCheckpoint(second, &none));
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessRestore(second, &none));
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessUnlock(second, &none));
    EXPECT_STATE(RUNNING);
    OK(cuCheckpointProcessLock(second, &in_time));
    EXPECT_STATE(LOCKED);
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessLock(second, &in_time));
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessRestore(second, NULL));
    meet();
    meet();
    OK(cuCheckpointProcessCheckpoint(second, NULL)); /* the arguments are optional */
    EXPECT_STATE(CHECKPOINTED);
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessCheckpoint(second, &none));
    EXPECT(ILLEGAL_STATE, cuCheckpointProcessUnlock(second, &none));
    meet();
    meet();
    OK(cuCheckpointProcessRestore(second, &none));
    EXPECT_STATE(LOCKED);
    OK(cuCheckpointProcessUnlock(second, &none));
    EXPECT_STATE(RUNNING);
    meet();
    meet();
    OK(cuCheckpointProcessLock(second, &in_time));
    EXPECT(NOT_SUPPORTED, cuCheckpointProcessCheckpoint(second, &none));
    EXPECT_STATE(LOCKED);
    OK(cuCheckpointProcessUnlock(second, NULL));
    EXPECT_STATE(RUNNING);
    meet();
    meet();
    kill_second();
    EXPECT(NOT_INITIALIZED, cuCheckpointProcessGetState(second, &state));
    EXPECT(NOT_INITIALIZED, cuCheckpointProcessRestore(second, &none));
    if (is_simulated()) {
        in_time.reserved1[6] = none.reserved[7] = 1; /* "must be zeroed" */
        EXPECT(INVALID_VALUE, cuCheckpointProcessLock(getpid(), &in_time));
        EXPECT(INVALID_VALUE, cuCheckpointProcessUnlock(getpid(), &none));
        EXPECT(INVALID_VALUE, cuCheckpointProcessGetState(getpid(), NULL));
        EXPECT(INVALID_VALUE, cuCheckpointProcessGetState(-1, &state));
    }
    return finish("checkpoint");
}
