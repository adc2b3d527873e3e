/* Starts a program many times at once: starts COUNT PROGRAM. All processes are there beforehand and wait at a gate, so that
 * forking is no part of it; behind it each becomes the program. Prints for each how long it took from the opening of the
 * gate to its end (ms), in the order in which they ended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[1]) : 0, status, bad = count < 1, ready[2], gate[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) || pipe2(gate, O_CLOEXEC)) return 2;
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0) return 3;
        if (pid) continue;
        close(gate[1]);
        if (write(ready[1], "", 1) != 1 || read(gate[0], &byte, 1)) _exit(4);
        execv(argv[2], argv + 2);
        _exit(5);
    }
    for (int i = 0; i < count; i++)
        if (read(ready[0], &byte, 1) != 1) return 6;
    double start = now(), *ends = calloc(count, sizeof *ends);
    close(gate[1]);
    for (int i = 0; i < count && wait(&status) > 0; i++) {
        bad |= status;
        ends[i] = now() - start;
    }
    for (int i = 0; i < count; i++) printf("%.3f\n", ends[i]);
    return bad != 0;
}
