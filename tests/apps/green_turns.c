/* Two threads take turns with two green contexts, each current to one of them at a time, while a third one, to which the
 * primary context is current, uses their streams. Prints what each call answered.
 * green_turns fill: takes memory in the order of a green context's stream, while that is current to another thread, until
 * there is no more in a quota of 512 MiB.
 * CUDA Driver API: "Green Contexts"; "a green context can be current to only one thread at a time" (cuGreenCtxCreate). */
typedef struct Resource {
    unsigned type;
    unsigned char padding[92];
    union {
        struct { unsigned count, smallest, alignment, flags, domain; } sm;
        unsigned char bytes[40];
    };
    struct Resource *next;
} Resource;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, Resource *, unsigned))                         \
    X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040,                                                 \
      (Resource *, unsigned *, const Resource *, Resource *, unsigned, unsigned))                                      \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (struct Desc **, Resource *, unsigned))             \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (struct Green **, struct Desc *, CUdevice, unsigned))                 \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (struct Green *))                                                   \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, (CUcontext *, struct Green *))                                      \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, (CUstream *, struct Green *, unsigned, int))
struct Desc;
struct Green;
#include "driver.h"
#include <pthread.h>
#include <unistd.h>
enum { SM = 1, DEFAULT_STREAM = 1, ROUNDS = 20, LAUNCHES = 12 };
#define MIB (1ul << 20)
static struct Green *greens[2];
static CUcontext contexts[2];
static CUstream streams[2], borrowed[2];
static pthread_barrier_t turn;
/* How often each code was the answer. */
static unsigned answers[3][1000];
static void note(int who, CUresult code) { answers[who][code >= 0 && code < 1000 ? code : 999]++; }

static void *takes_turns(void *argument)
{
    int who = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        int which = (who + round) % 2;
        CUdeviceptr p = 0;
        CUcontext now;
        note(who, cuCtxSetCurrent(contexts[which]));
        note(who, cuMemAllocAsync(&p, MIB, streams[which]));
        for (int i = 0; i < LAUNCHES; i++) note(who, launch(spin, streams[which], 500000));
        note(who, cuMemFreeAsync(p, streams[which]));
        note(who, cuCtxPopCurrent_v2(&now));
        pthread_barrier_wait(&turn);
        usleep(3000); /* at work, and current in no thread */
        pthread_barrier_wait(&turn);
    }
    return NULL;
}
static volatile int over;
static void *borrows(void *unused)
{
    CUdeviceptr p, q;
    note(2, cuCtxSetCurrent(context));
    while (!over) {
        for (int which = 0; which < 2; which++) {
            CUresult codes[] = {cuMemAllocAsync(&p, MIB, borrowed[which]), cuMemFreeAsync(p, borrowed[which]),
                                cuMemAlloc_v2(&q, MIB), cuMemFreeAsync(q, borrowed[which])};
            for (int i = 0; i < 4; i++)
                if (codes[i]) note(2, codes[i]);
        }
        usleep(500);
    }
    return unused;
}
static void *holds(void *unused)
{
    OK(cuCtxSetCurrent(contexts[0]));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}
static void fills(void)
{
    pthread_t thread;
    CUdeviceptr p;
    int taken = 0;
    pthread_create(&thread, NULL, holds, NULL);
    pthread_barrier_wait(&turn);
    while (taken < 16 && cuMemAllocAsync(&p, 64 * MIB, streams[0]) == SUCCESS) taken++;
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    CHECK(taken > 4 && taken < 8);
}
int main(int argc, char **argv)
{
    setup();
    Resource all, rest, groups[2];
    unsigned count = 2;
    struct Desc *desc[2];
    OK(cuDeviceGetDevResource(device, &all, SM));
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, all.sm.count / 4));
    for (int i = 0; i < 2; i++) {
        OK(cuDevResourceGenerateDesc(&desc[i], &groups[i], 1));
        OK(cuGreenCtxCreate(&greens[i], desc[i], device, DEFAULT_STREAM));
        OK(cuCtxFromGreenCtx(&contexts[i], greens[i]));
        OK(cuGreenCtxStreamCreate(&streams[i], greens[i], STREAM_NON_BLOCKING, 0));
        OK(cuGreenCtxStreamCreate(&borrowed[i], greens[i], STREAM_NON_BLOCKING, 0));
    }
    pthread_barrier_init(&turn, NULL, 2);
    if (argc > 1) {
        fills();
        return finish("green_turns fill");
    }
    pthread_t threads[3];
    for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, takes_turns, (void *)i);
    pthread_create(&threads[2], NULL, borrows, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    over = 1;
    pthread_join(threads[2], NULL);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) OK(cuGreenCtxDestroy(greens[i]));
    for (int who = 0; who < 3; who++)
        for (int code = 0; code < 1000; code++)
            if (answers[who][code]) printf("thread %d: %u times %d\n", who, answers[who][code], code);
    return finish("green_turns");
}
