/* Starts a program many times at once: starts COUNT PROGRAM. Prints for each how long it took from the common start to its
 * end (ms), in the order in which they ended. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
extern char **environ;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[1]) : 0, status, bad = count < 1;
    double start = now();
    pid_t pid;
    for (int i = 0; i < count; i++)
        if (posix_spawn(&pid, argv[2], NULL, NULL, argv + 2, environ)) return 2;
    while (wait(&status) > 0) {
        bad |= status;
        printf("%.3f\n", now() - start);
    }
    return bad != 0;
}
