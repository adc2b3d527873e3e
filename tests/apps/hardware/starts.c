/* Processes that all start at the same moment: how long each needs until it has a context, and whether one fails.
 *   starts COUNT    docs/hardware.md, "start of NVML" */
#include "measure.h"
#include <sys/wait.h>

static int child(int ready, int result)
{
    char byte;
    if (read(ready, &byte, 1) < 0) return 1; /* returns when the parent closes its end */
    double begin = now_us();
    setup();
    double took = now_us() - begin;
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuMemFree_v2(p));
    return failures || write(result, &took, sizeof took) != sizeof took;
}
int main(int argc, char **argv)
{
    static double took[1000];
    int count = argc > 1 ? atoi(argv[1]) : 50, gate[2], results[2], bad = 0, ok = 0;
    if (count > 1000 || pipe(gate) || pipe(results)) return 64;
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            close(gate[1]);
            exit(child(gate[0], results[1]));
        }
        if (pid < 0) return 1;
    }
    close(results[1]);
    double begin = now_us();
    close(gate[1]);
    while (ok < count && read(results[0], &took[ok], sizeof *took) == sizeof *took) ok++;
    report("all_started", (now_us() - begin) / 1e3, "ms");
    for (int i = 0, status; i < count; i++) {
        wait(&status);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip("no device");
        bad += status != 0;
    }
    report("failed", bad, "processes");
    for (int i = 0; i < ok; i++) took[i] /= 1e3;
    if (ok) report_spread("start", took, ok, "ms");
    return bad != 0;
}
