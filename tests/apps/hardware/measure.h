/* What the programs of this folder share. Each asks a driver, with or without the shim, one question of docs/hardware.md
 * and prints lines "NAME VALUE UNIT"; a value "-" means that it could not be had, and UNIT says why. They end with 0 if the
 * question was asked, 77 if this driver cannot answer it at all (first line: "skip: REASON"), 1 if a call failed that must
 * not. scripts/gpu-acceptance.sh runs them and judges the figures. */
#ifndef VCUDA_TESTS_MEASURE_H
#define VCUDA_TESTS_MEASURE_H
#if !defined(VIA_DLSYM) && !defined(VIA_PROC) && !defined(VIA_LINK)
#define VIA_DLSYM
#endif
#include "../driver.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
static inline void report(const char *name, double value, const char *unit)
{
    printf("%s %.12g %s\n", name, value, unit);
    fflush(stdout);
}
static inline void not_measured(const char *name, const char *reason)
{
    printf("%s - %s\n", name, reason);
    fflush(stdout);
}
static inline _Noreturn void skip(const char *reason)
{
    printf("skip: %s\n", reason);
    exit(77);
}
/* A function of the driver that not every release has: NULL if it is missing. */
static inline void *optional(const char *symbol)
{
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, symbol) : NULL;
}
#define OPTIONAL(symbol, args) CUresult(*symbol) args = (CUresult(*) args)optional(#symbol)

static inline int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
/* Sorts the samples; reports NAME_median, NAME_p99 and NAME_max. */
static inline void report_spread(const char *name, double *samples, int count, const char *unit)
{
    static const char *const which[] = {"median", "p99", "max"};
    const int at[] = {count / 2, count * 99 / 100, count - 1};
    char full[96];
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    for (int i = 0; i < 3; i++) {
        snprintf(full, sizeof full, "%s_%s", name, which[i]);
        report(full, samples[at[i]], unit);
    }
}
/* Times each of COUNT (at most 1000) runs of the statements on the host. */
#define TIME_EACH(name, count, ...)                                                                                    \
    do {                                                                                                               \
        static double samples_[1000];                                                                                  \
        for (int i_ = 0; i_ < (count); i_++) {                                                                         \
            double begin_ = now_us();                                                                                  \
            __VA_ARGS__;                                                                                               \
            samples_[i_] = now_us() - begin_;                                                                          \
        }                                                                                                              \
        report_spread(name, samples_, count, "us");                                                                    \
    } while (0)
/* Runs a thread to its end. */
static inline void in_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument)) {
        printf("FAIL pthread_create\n");
        exit(1);
    }
    pthread_join(thread, NULL);
}
#endif
