/* Several threads allocate and free at once: contention START THREADS SECONDS LATE. All begin when CLOCK_MONOTONIC says START
 * (seconds), so that several such processes measure the same time; who ends LATE seconds after that time or more has measured
 * another one, and fails. Prints allocations (each with its free) per second. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(uintptr_t *, size_t), cuMemFree_v2(uintptr_t);
static double start, end;
static void *context;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void *work(void *count)
{
    uintptr_t p;
    long pairs = 0;
    if (cuCtxSetCurrent(context)) exit(1);
    while (now() < start) ;
    do {
        for (int i = 0; i < 64; i++)
            if (cuMemAlloc_v2(&p, 4096) || cuMemFree_v2(p)) exit(2);
        pairs += 64;
    } while (now() < end);
    *(long *)count = pairs;
    return NULL;
}
int main(int argc, char **argv)
{
    int threads = argc > 4 ? atoi(argv[2]) : 1;
    long counts[64] = {0}, sum = 0;
    pthread_t ids[64];
    if (argc < 5 || threads < 1 || threads > 64) return 64;
    start = atof(argv[1]);
    end = start + atof(argv[3]);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 3;
    /* A failed call there ends the process. */
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, work, &counts[i]);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL), sum += counts[i];
    if (now() > end + atof(argv[4])) return 4;
    printf("%.0f\n", sum / (end - start));
    return 0;
}
