/* Processes that end with work in flight while another thread queries an event: how many end badly.
 * docs/hardware.md, "end of a process". */
#include "measure.h"
#include <sys/wait.h>

static CUevent event;
static void *poll_for_ever(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(context);
    for (;;) cuEventQuery(event);
    return NULL;
}
static int child(void)
{
    CUstream stream;
    pthread_t thread;
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(launch(spin, stream, 20000000));
    OK(cuEventRecord(event, stream));
    pthread_create(&thread, NULL, poll_for_ever, NULL);
    usleep(2000);
    return failures != 0;
}
int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 40, badly = 0;
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        int status = 0;
        if (pid == 0) exit(child());
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip("no device");
        if (status) badly++;
    }
    report("ended", count, "processes");
    report("ended_badly", badly, "processes");
    return badly != 0;
}
