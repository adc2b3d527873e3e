/* fork_busy [raw]: forks of every kind while other threads of the process allocate and launch: no child hangs, a child
 * without exec is refused (3), one that begins anew works, and nothing of the parent's is disturbed. raw: the last kind
 * alone, while a thread has the heap locked most of the time. */
#include "driver.h"
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>
extern char **environ;
static volatile int stop;
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}
static void *allocate(void *unused)
{
    CUdeviceptr p;
    OK(cuCtxSetCurrent(context));
    while (!stop) {
        /* The new programs' contexts may leave no room for a while. */
        CUresult code = cuMemAlloc_v2(&p, 1 << 20);
        if (code == SUCCESS) OK(cuMemFree_v2(p));
        else EXPECT(OUT_OF_MEMORY, code);
    }
    return unused;
}
static void *churn(void *unused)
{
    while (!stop) {
        void *volatile block = malloc(1 << 12);
        free(block);
    }
    return unused;
}
static void *launches(void *unused)
{
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    while (!stop) {
        OK(launch(spin, stream, 100000));
        OK(cuStreamSynchronize(stream));
    }
    return unused;
}
int main(int argc, char **argv)
{
    CUdeviceptr p;
    size_t left, total;
    setup();
    const int raw = argc > 1 && !strcmp(argv[1], "raw");
    if (argc > 1 && !raw) {
        OK(cuMemAlloc_v2(&p, 1 << 20));
        OK(launch(spin, NULL, 1000));
        OK(cuCtxSynchronize());
        return failures;
    }
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 2 ? allocate : raw && i == 3 ? churn : launches, NULL);
    double end = seconds() + 2;
    for (int i = 0; seconds() < end || i < 10; i++) {
        char *anew[] = {"fork_busy", "anew", NULL};
        int status = 0, ended = 0;
        pid_t child = -1;
        switch (raw ? 5 : i % 6) {
        case 0:
            if ((child = fork()) == 0)
                _exit(cuMemAlloc_v2(&p, 100) != 3 || launch(spin, NULL, 100) != 3 || cuMemGetInfo_v2(&left, &total) != 3 ||
                      cuInit(0) != 3);
            break;
        case 1:
            if ((child = fork()) == 0) _exit(execv("/proc/self/exe", anew) != 0);
            break;
        case 2:
            if ((child = vfork()) == 0) _exit(execl("/bin/true", "true", NULL) != 0);
            break;
        case 3:
            CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, anew, environ) == 0);
            break;
        case 4:
            if ((child = fork()) == 0) exit(0);
            break;
        case 5: /* No handler of pthread_atfork runs; the C library's own locks may be taken for ever, too. */
            if ((child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == 0)
                _exit(cuMemAlloc_v2(&p, 100) != 3 || launch(spin, NULL, 100) != 3 || cuMemGetInfo_v2(&left, &total) != 3 ||
                      cuInit(0) != 3);
            break;
        }
        double bound = seconds() + 10;
        while (!(ended = waitpid(child, &status, WNOHANG)) && seconds() < bound) usleep(500);
        if (!ended) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        }
        if (status) {
            printf("FAIL child %d of kind %d: %s%x\n", i, raw ? 5 : i % 6, ended ? "status " : "hangs, ", status);
            failures++;
        }
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return finish("fork_busy");
}
