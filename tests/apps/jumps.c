/* A thread that leaves a waiting call, or calls the driver within one: jumps HOW [memory]. Prints "started".
 *   jump      each launch that waits is left by siglongjmp out of a signal handler
 *   deeper    so, and the calls after it come from deeper frames
 *   handler   the handler launches, too, and returns
 *   alternate  so, on the alternate stack of signals
 *   clone     a child that shares the thread's thread-local storage (clone without CLONE_SETTLS) launches beside the thread
 * Kernels of 1 ms, without end. With `memory`, after 20 such calls, or in them: allocates 64 MiB until the driver refuses, prints
 * "holds N" (MiB) and ends. */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#define MS 1000000ull
enum { CHUNK_MB = 64, CALLS = 20, STACK = 1 << 20 };
static CUstream stream;
static sigjmp_buf top;
static pthread_t self;
/* Calls of the thread so far, odd within one. */
static volatile unsigned long calls;
static volatile sig_atomic_t signals;
static int jumps, fills;

static CUresult one(void)
{
    calls++;
    CUresult code = launch(spin, stream, MS);
    calls++;
    return code;
}
static void fill(void)
{
    int held = 0;
    CUdeviceptr address;
    while (held < 1000 && cuMemAlloc_v2(&address, CHUNK_MB << 20) == SUCCESS) held++;
    printf("holds %d\n", held * CHUNK_MB);
    fflush(stdout);
    _exit(0);
}
static void on_signal(int number)
{
    (void)number;
    signals++;
    if (jumps) siglongjmp(top, 1);
    if (fills && signals > CALLS) fill();
    launch(spin, stream, MS);
}
/* Whether the main thread sleeps, by proc(5). */
static int sleeps(void)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
    if (file) fclose(file);
    return state == 'S';
}
/* Sends a signal to the thread once it has been in the same call for 5 ms and sleeps: it waits there. */
static void *sends(void *unused)
{
    const struct timespec pause = {0, 5 * MS};
    for (;;) {
        unsigned long before = calls;
        nanosleep(&pause, NULL);
        if (before % 2 && before == calls && sleeps()) pthread_kill(self, SIGUSR1);
    }
    return unused;
}
static void *launches_beside(void *unused)
{
    for (int i = 0; !failures; i++) {
        if (fills && i == CALLS) fill();
        launch(spin, stream, MS);
    }
    return unused;
}
static int child(void *unused) { return launches_beside(unused) != NULL; }
/* The frames of earlier calls are overwritten here, or lie above. */
static CUresult deeper(int depth)
{
    volatile char frame[512];
    memset((char *)frame, depth, sizeof frame);
    return depth ? deeper(depth - 1) : one();
}
int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "jump";
    pthread_t other;
    struct sigaction action = {.sa_handler = on_signal};
    fills = argc > 2;
    jumps = !strcmp(how, "jump") || !strcmp(how, "deeper");
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    self = pthread_self();
    if (!strcmp(how, "alternate")) {
        stack_t alternate = {.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = STACK};
        CHECK(!sigaltstack(&alternate, NULL));
        action.sa_flags = SA_ONSTACK;
    }
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    printf("started\n");
    fflush(stdout);
    if (!strcmp(how, "clone")) {
        char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        CHECK(clone(child, stack + STACK, flags, NULL) > 0);
    } else CHECK(!pthread_create(&other, NULL, sends, NULL));
    sigsetjmp(top, 1);
    calls += calls % 2;
    if (jumps && fills && signals > CALLS) fill();
    while (!failures) OK(strcmp(how, "deeper") || !signals ? one() : deeper(20));
    return 1;
}
