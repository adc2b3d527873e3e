/* A kernel of 500 ms is launched and known; then a graph of three of them is made and launched
 * for the first time: prints "launched" then, and ends when it is done. */
#include "driver.h"
int main(void)
{
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    setup();
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        OK(launch(spin, s, 500000000));
        OK(cuStreamSynchronize(s));
    }
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < 3; i++) OK(launch(spin, s, 500000000));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    printf("launched\n");
    fflush(stdout);
    OK(cuStreamSynchronize(s));
    return finish("first_graph");
}
