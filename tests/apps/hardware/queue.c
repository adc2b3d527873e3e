/* How many launches a stream takes while its first kernel runs, until a launch has to wait: of kernels alone, of kernels with an
 * event after each, and of kernels in two streams. docs/hardware.md, "depth of the launch queue". */
#include "measure.h"

#define MOST 20000
static CUstream streams[2];
static CUevent event;

static void fill(const char *name, int used_streams, int with_events)
{
    int count = 0;
    char full[48];
    OK(launch(spin, streams[0], 400000000));
    if (used_streams > 1) OK(launch(spin, streams[1], 400000000));
    double begin = now_us(), longest = 0;
    while (count < MOST && longest < 50000) {
        double from = now_us();
        OK(launch(work, streams[count % used_streams], 1));
        if (with_events) OK(cuEventRecord(event, streams[count % used_streams]));
        longest = now_us() - from;
        count++;
    }
    double took = now_us() - begin;
    OK(cuCtxSynchronize());
    snprintf(full, sizeof full, "%s_launches", name), report(full, count, "launches");
    snprintf(full, sizeof full, "%s_until", name), report(full, took / 1e3, "ms");
}
int main(void)
{
    setup();
    for (int i = 0; i < 2; i++) OK(cuStreamCreate(&streams[i], STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(launch(work, streams[0], 1));
    OK(cuCtxSynchronize());
    fill("alone", 1, 0);
    fill("with_events", 1, 1);
    fill("two_streams", 2, 0);
    return failures != 0;
}
