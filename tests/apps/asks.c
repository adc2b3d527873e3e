/* Makes and destroys contexts when it is told to, a line each: first beside an open capture of this thread, which is in relaxed
 * mode, then after its end. Says "made CODE" each time, where CODE is the first that is no success. */
#include "driver.h"
static void make(void)
{
    char line[16];
    CUcontext made;
    if (!fgets(line, sizeof line, stdin)) exit(3);
    CUresult code = cuCtxCreate_v2(&made, 0, device);
    if (code == SUCCESS) code = cuCtxDestroy_v2(made);
    printf("made %d\n", code);
    fflush(stdout);
}
int main(void)
{
    CUstream stream;
    CUgraph graph;
    int mode = 2;
    driver_open();
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamBeginCapture_v2(stream, 0));
    printf("capturing\n");
    fflush(stdout);
    make();
    make();
    OK(cuStreamEndCapture(stream, &graph));
    make();
    return finish("asks");
}
