/* How many calls a second threads make together: launches, each thread into its own stream, and allocations that are freed.
 * Kernels are short, so that the processor limits. `processes` does the same in forked processes of one thread each.
 *   threads [SECONDS]    docs/hardware.md, "calls of many threads" */
#include "measure.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define MOST 16
static double seconds = 0.5;
static volatile int go;
typedef struct { int allocates; volatile long count; } Worker;

static void *work_for_a_while(void *argument)
{
    Worker *own = argument;
    CUstream stream;
    CUdeviceptr p;
    long count = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    while (!go) usleep(10);
    double end = now_us() + seconds * 1e6;
    while (now_us() < end) {
        for (int i = 0; i < 64; i++) {
            if (own->allocates) {
                OK(cuMemAlloc_v2(&p, 4096));
                OK(cuMemFree_v2(p));
            } else {
                OK(launch(work, stream, 1));
            }
        }
        if (!own->allocates) OK(cuStreamSynchronize(stream));
        count += 64;
    }
    own->count = count;
    return NULL;
}
static double together(int threads, int allocates)
{
    Worker workers[MOST] = {{0}};
    pthread_t ids[MOST];
    double sum = 0;
    go = 0;
    for (int i = 0; i < threads; i++) {
        workers[i].allocates = allocates;
        pthread_create(&ids[i], NULL, work_for_a_while, &workers[i]);
    }
    usleep(20000);
    go = 1;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++) sum += (double)workers[i].count;
    return sum / seconds;
}
/* Two processes with that many threads each. */
static double two_processes(int threads, int allocates)
{
    double *rates = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2], gate[2], status;
    char byte = 0;
    if (rates == MAP_FAILED || pipe(ready) || pipe(gate)) exit(1);
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            close(gate[1]);
            setup();
            if (write(ready[1], &byte, 1) != 1 || read(gate[0], &byte, 1) < 0) exit(1);
            rates[i] = together(threads, allocates);
            exit(failures != 0);
        }
    }
    close(ready[1]);
    for (int i = 0; i < 2; i++)
        if (read(ready[0], &byte, 1) != 1) break; /* it ended: its status says why */
    close(gate[1]);
    for (int i = 0; i < 2; i++)
        if (wait(&status), status == 77 << 8) skip("no device");
        else if (status) failures++;
    return rates[0] + rates[1];
}
int main(int argc, char **argv)
{
    static const int counts[] = {1, 4, MOST};
    static const char *const names[] = {"launches", "allocations"};
    char name[64];
    if (argc > 1) seconds = atof(argv[1]);
    for (int kind = 0; kind < 2; kind++) {
        double rate = two_processes(4, kind);
        snprintf(name, sizeof name, "%s_of_2x4_threads", names[kind]), report(name, rate, "calls/s");
    }
    setup();
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 3; i++) {
            double rate = together(counts[i], kind);
            snprintf(name, sizeof name, "%s_of_%d_threads", names[kind], counts[i]), report(name, rate, "calls/s");
        }
    return failures != 0;
}
