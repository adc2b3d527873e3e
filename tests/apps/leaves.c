/* The main thread leaves by pthread_exit while the process uses a GPU: leaves HOW WORK.
 *   alone     no other thread is left: the process ends with its exit handlers and status 0
 *   pending   likewise, while a signal is pending that all threads block
 *   worker    another thread works on for a while, then returns: likewise
 *   waits     another thread says so and waits for a signal
 *   handled   likewise, with a handler that says on what kind of thread it runs and ends the process
 * WORK is "memory" or "launches". */
#include "driver.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *how;
static int launches;

static void use_gpu(void)
{
    CUdeviceptr p = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&p, 1 << 20));
    for (int i = 0; launches && i < 50; i++) OK(launch(spin, NULL, 100000));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
}
static void handle(int number)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    int is_ours = strncmp(name, "vcuda", 5) == 0;
    const char *words = is_ours ? "handled by a thread of the shim\n" : "handled\n";
    if (write(1, words, strlen(words)) < 0 || number != SIGTERM) _exit(9);
    _exit(7);
}
static void *other(void *unused)
{
    use_gpu();
    if (!strcmp(how, "worker")) {
        usleep(600000); /* the main thread has been gone for longer than the shim takes to see it */
        use_gpu();
        return unused;
    }
    printf("waiting\n");
    fflush(stdout);
    for (;;) pause();
}
static void at_exit(void)
{
    printf("exit handler\n");
}
int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 3) return 2;
    how = argv[1];
    launches = !strcmp(argv[2], "launches");
    atexit(at_exit);
    if (!strcmp(how, "pending")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        kill(getpid(), SIGUSR1);
    }
    setup();
    use_gpu();
    if (!strcmp(how, "handled")) signal(SIGTERM, handle); /* after the shim's threads began */
    if (strcmp(how, "alone") && strcmp(how, "pending")) CHECK(!pthread_create(&thread, NULL, other, NULL));
    printf("main thread leaves\n");
    fflush(stdout);
    pthread_exit(NULL);
}
