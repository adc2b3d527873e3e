/* Things that take time, for the library of virtual time. Prints nanoseconds of CLOCK_MONOTONIC since START_NS (argument 2).
 * virtual_time sleep START_NS US COUNT   sleeps so often, prints when each sleep ended
 * virtual_time spin START_NS US          looks at the clock until so much has gone
 * virtual_time ping START_NS FILE SIDE   two processes wake each other a hundred times by a word of FILE; side 0
 *                                        takes 100 us each time
 * virtual_time await START_NS FILE       waits until a word of FILE is not 0, prints when that was
 * virtual_time set START_NS FILE         sets that word, and wakes who waits
 * virtual_time until START_NS US         waits on a word, which no thread wakes, until a time
 * virtual_time threads START_NS US       a thread sleeps, the first joins it, then becomes "sleep"
 * virtual_time stops START_NS            sleeps 1 ms, stops itself, and prints when it goes on
 * virtual_time signal START_NS US    a thread that sleeps 10 ms gets a signal after so long: prints when its handler ran, when the sleep
 *                                        ended, and how much of it was left
 * virtual_time killed START_NS           sleeps 1 ms and kills itself */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long long start;
static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec - start;
}
static void *napper(void *us)
{
    usleep((useconds_t)(uintptr_t)us);
    return NULL;
}
static void on_signal(int number)
{
    (void)number;
    printf("%lld\n", now());
}
static void *signalled(void *unused)
{
    struct timespec time = {0, 10000000}, left = {0, 0};
    nanosleep(&time, &left);
    printf("%lld\n%ld\n", now(), left.tv_nsec);
    return unused;
}
static _Atomic unsigned *word_of(const char *file)
{
    int fd = open(file, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) exit(1);
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}
static void until(long long us)
{
    static _Atomic unsigned word;
    long long end = start + now() + us * 1000;
    struct timespec t = {end / 1000000000, end % 1000000000};
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &t, NULL, FUTEX_BITSET_MATCH_ANY);
}
static void ping(const char *file, unsigned side)
{
    _Atomic unsigned *word = word_of(file);
    for (int i = 0; i < 100; i++) {
        unsigned seen;
        while ((seen = *word) % 2 != side) syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL);
        if (!side) usleep(100);
        *word = seen + 1;
        syscall(SYS_futex, word, FUTEX_WAKE, 1);
    }
}
int main(int argc, char **argv)
{
    if (argc < 3) return 64;
    const char *what = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    start = atoll(argv[2]);
    if (!strcmp(what, "sleep"))
        for (int i = 0; i < atoi(argv[4]); i++) {
            struct timespec t = {atoll(argv[3]) / 1000000, atoll(argv[3]) % 1000000 * 1000};
            nanosleep(&t, NULL);
            printf("%lld\n", now());
        }
    if (!strcmp(what, "spin")) {
        while (now() < atoll(argv[3]) * 1000) {}
        printf("%lld\n", now());
    }
    if (!strcmp(what, "ping")) {
        ping(argv[3], (unsigned)atoi(argv[4]));
        printf("%lld\n", now());
    }
    if (!strcmp(what, "await")) {
        _Atomic unsigned *word = word_of(argv[3]);
        while (!*word) syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL);
        printf("%lld\n", now());
    }
    if (!strcmp(what, "set")) {
        _Atomic unsigned *word = word_of(argv[3]);
        *word = 1;
        syscall(SYS_futex, word, FUTEX_WAKE, 1);
    }
    if (!strcmp(what, "until")) until(atoll(argv[3]));
    if (!strcmp(what, "threads")) {
        pthread_t thread;
        pthread_create(&thread, NULL, napper, (void *)(uintptr_t)atoll(argv[3]));
        pthread_join(thread, NULL);
        printf("%lld\n", now());
        execl(argv[0], argv[0], "sleep", argv[2], argv[3], "1", NULL);
    }
    if (!strcmp(what, "stops")) {
        usleep(1000);
        raise(SIGSTOP);
        printf("%lld\n", now());
    }
    if (!strcmp(what, "signal")) {
        pthread_t thread;
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGUSR1, &action, NULL);
        pthread_create(&thread, NULL, signalled, NULL);
        usleep((useconds_t)atoll(argv[3]));
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, NULL);
    }
    if (!strcmp(what, "killed")) {
        usleep(1000);
        kill(getpid(), SIGKILL);
    }
    return 0;
}
