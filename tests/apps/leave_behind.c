/* Fills the quota and leaves it behind: leave_behind HOW BYTES. Allocates BYTES at a time until it is refused, prints
 * "filled N", and waits for ever. HOW:
 *   alone  nothing more
 *   child  forks a child that calls no exec and waits for ever, and prints "child PID"
 *   exec   forks such a child, prints "child PID", and becomes "leave_behind alone BYTES" by exec */
#include "driver.h"
#include <unistd.h>
static void say(const char *what, long number)
{
    printf("%s %ld\n", what, number);
    fflush(stdout);
}
int main(int argc, char **argv)
{
    size_t bytes = strtoull(argv[2], NULL, 0);
    long filled = 0;
    CHECK(argc == 3);
    setup();
    CUresult code;
    for (CUdeviceptr p; (code = cuMemAlloc_v2(&p, bytes)) == SUCCESS; filled++) {}
    EXPECT(OUT_OF_MEMORY, code);
    say("filled", filled);
    if (strcmp(argv[1], "alone")) {
        pid_t child = fork();
        if (!child) {
            /* A test that has failed kills nothing. */
            alarm(60);
            for (;;) pause();
        }
        say("child", child);
    }
    if (!strcmp(argv[1], "exec")) execl("/proc/self/exe", argv[0], "alone", argv[2], (char *)NULL);
    for (;;) pause();
}
