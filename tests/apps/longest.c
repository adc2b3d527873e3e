/* Launches a kernel and waits for it, again and again: longest KERNEL_NS. Prints "started"; for each line on stdin
 * "longest NS": the longest that one took, from the launch to its end, since the last time. Ends with stdin. */
#include "driver.h"
#include <poll.h>
#include <time.h>
static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
int main(int count, char **argv)
{
    uint64_t ns = strtoull(argv[count - 1], NULL, 0), longest = 0;
    char line[64];
    setup();
    printf("started\n");
    fflush(stdout);
    for (;;) {
        void *params[] = {&ns};
        uint64_t before = now_ns();
        OK(launch(spin, NULL, ns));
        OK(cuStreamSynchronize(NULL));
        uint64_t took = now_ns() - before;
        if (took > longest) longest = took;
        struct pollfd in = {0, POLLIN, 0};
        if (poll(&in, 1, 0) > 0) {
            if (!fgets(line, sizeof line, stdin)) return failures ? 1 : 0;
            printf("longest %llu failures %d\n", (unsigned long long)longest, failures);
            fflush(stdout);
            longest = 0;
        }
    }
}
