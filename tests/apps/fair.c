/* Threads with a stream each, all of which keep the GPU busy: fair THREADS SECONDS KERNEL_NS. Prints "served"
 * and how many kernels of each thread were done. */
#include "driver.h"
#include <pthread.h>
#include <time.h>
static double seconds;
static uint64_t ns;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void *busy(void *count)
{
    CUstream s;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    for (double end = now() + seconds; now() < end && !failures; ++*(long *)count) {
        OK(launch(spin, s, ns));
        OK(cuStreamSynchronize(s));
    }
    return NULL;
}
int main(int argc, char **argv)
{
    int threads = atoi(argv[1]);
    pthread_t thread[64];
    long served[64] = {0};
    seconds = atof(argv[2]);
    ns = strtoull(argv[3], NULL, 0);
    setup();
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; i < threads; i++) OK(pthread_create(&thread[i], NULL, busy, &served[i]));
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    printf("served");
    for (int i = 0; i < threads; i++) printf(" %ld", served[i]);
    printf("\n");
    return failures ? 1 : 0;
}
