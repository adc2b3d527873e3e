/* Streams that the host feeds: fed value|function SECONDS CAP_PERCENT. Each round 100 us of kernels wait for the host. The
 * waiting is no GPU time: the program must get at least half of its cap (it got a tenth when the waiting was charged). */
#include "driver.h"
#include <time.h>
#include <unistd.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static void sleep_in_the_stream(void *unused) { usleep(200); }
int main(int argc, char **argv)
{
    int by_value = argc > 1 && !strcmp(argv[1], "value");
    double seconds = atof(argv[2]), cap = atof(argv[3]), worst = 0;
    CUstream s;
    void *host = NULL;
    CUdeviceptr address = 0;
    uint32_t round = 0;
    setup();
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc(&host, 64, 2));
    OK(cuMemHostGetDevicePointer_v2(&address, host, 0));
    volatile uint32_t *flag = host;
    *flag = 0;
    double begin = now();
    while (now() - begin < seconds && !failures) {
        round++;
        if (by_value) OK(cuStreamWaitValue32_v2(s, address, round, 0));
        else OK(cuLaunchHostFunc(s, sleep_in_the_stream, NULL));
        for (int i = 0; i < 5; i++) {
            double before = now();
            OK(launch(spin, s, 20000));
            if (now() - before > worst) worst = now() - before;
        }
        if (by_value) usleep(200);
        *flag = round;
        OK(cuStreamSynchronize(s));
    }
    printf("share %.1f of %.0f, longest launch %.3f s\n", round * 100e-6 / (now() - begin) * 100, cap, worst);
    if (cap < 100) CHECK(round * 100e-6 / (now() - begin) * 100 > cap * 0.5);
    return finish("fed");
}
