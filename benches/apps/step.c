/* A program of the shape of a small PyTorch model: step STEPS [HOST_US [KERNEL_NS]]. In a step two threads in turn launch 57 of 16 kernels
 * of KERNEL_NS to 3.7 times that, each after HOST_US of the host's own work; the program waits for the GPU after 150 steps. A third of the
 * steps are not counted. Prints the time of a step, and its processors' time (us).
 * Or a neighbour that uses half of the GPU and next to no processor, until it is killed: step neighbour. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void),
    cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_backs_turn, failures;
static void *context;
static double host_us = 33;
static int kernel_ns = 3000;
static double wall_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}
static double processor_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}
static void launches(int from, int count)
{
    for (int i = from; i < from + count; i++) {
        for (double end = wall_us() + host_us; host_us > 0 && wall_us() < end;) ;
        void *kernel = (void *)(uintptr_t)(kernel_ns + i % 16 * (kernel_ns * 8 / 45));
        failures += cuLaunchKernel(kernel, 1 + i % 3, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) != 0;
    }
}
static void give_turn(int to_back)
{
    pthread_mutex_lock(&mutex);
    is_backs_turn = to_back;
    pthread_cond_broadcast(&changed);
    while (is_backs_turn == to_back) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}
static void *back(void *unused)
{
    failures += cuCtxSetCurrent(context) != 0;
    pthread_mutex_lock(&mutex);
    while (!is_backs_turn) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    for (;;) {
        launches(20, 34);
        give_turn(0);
    }
    return unused;
}
int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 900;
    if (argc > 2) host_us = atof(argv[2]);
    if (argc > 3) kernel_ns = atoi(argv[3]);
    double wall = 0, processor = 0;
    pthread_t thread;
    failures += cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
    while (argc > 1 && strcmp(argv[1], "neighbour") == 0) {
        failures += cuLaunchKernel((void *)2000000, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) != 0;
        usleep(4000);
    }
    pthread_create(&thread, NULL, back, NULL);
    for (int step = -steps / 3; step < steps; step++) {
        if (step == 0) wall = wall_us(), processor = processor_us();
        launches(0, 20);
        give_turn(1);
        launches(54, 3);
        if (step % 150 == 149) failures += cuCtxSynchronize() != 0;
    }
    printf("%.1f %.1f\n", (wall_us() - wall) / steps, (processor_us() - processor) / steps);
    return failures != 0;
}
