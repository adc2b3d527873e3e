/* One thread captures most of the time while another keeps the GPU busy: captures SECONDS KERNEL_NS. Prints "started". */
#include "driver.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static volatile int done;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void *capturing(void *unused)
{
    CUstream s;
    CUgraph graph;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    while (!done && !failures) {
        OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
        for (int i = 0; i < 20; i++) {
            OK(launch(spin, s, 1000));
            usleep(1000);
        }
        OK(cuStreamEndCapture(s, &graph));
        OK(cuGraphDestroy(graph));
        usleep(2000);
    }
    return NULL;
}
int main(int argc, char **argv)
{
    double seconds = atof(argv[1]);
    uint64_t ns = strtoull(argv[2], NULL, 0);
    CUstream s;
    pthread_t thread;
    setup();
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(pthread_create(&thread, NULL, capturing, NULL));
    printf("started\n");
    fflush(stdout);
    for (double end = now() + seconds; now() < end && !failures;) OK(launch(spin, s, ns));
    done = 1;
    pthread_join(thread, NULL);
    return failures ? 1 : 0;
}
