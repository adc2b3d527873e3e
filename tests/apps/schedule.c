/* Plays a schedule of GPU work, again and again until it is killed: schedule SCRIPT [FOLDER]. Prints "started". One with meetings makes
 * a file in the FOLDER and begins once there is another one, "go".
 * SCRIPT is "CONTEXTS STREAMS | STEPS | STEPS ...": so many contexts (0 is the primary one) of so many streams each, and the
 * steps of each thread. Stream k is number k % STREAMS of context k / STREAMS: in each context 0 is the legacy default stream,
 * 1 the thread's default stream, then come created ones, blocking and not in turn. Event e belongs to context e / EVENTS.
 *   L k,g,us,n  n kernels of us microseconds and grid g on stream k
 *   G k,g,us,n  the same n kernels as one graph
 *   B k,mode    begins to capture stream k (0 global, 1 of the thread, 2 relaxed)
 *   E k         ends that, launches the graph there and throws it away; one that other threads have put work in is not launched
 *   R k,e       records event e      W k,e  stream k waits for event e      Y e  the thread waits for event e
 *   S k         the thread waits for stream k      D  for its current context      Q k,us  polls stream k every us
 *   O e,us      polls event e every us; 0, of both: on and on, and gives way in between
 *   H k,us      a host function that takes us
 *   V k,i       the stream waits for flag i      U i  the flag comes
 *   I k,g,us,n  as L; a signal handler comes while a launch waits, and launches, too
 *   J k,g,us,n  as I; the handler leaves the step by siglongjmp
 *   M k,n,us    a kernel on stream k that spins until those of n ranks do, and takes us from there (simulator only). A process that has
 *               such steps ends if a round of its thread takes 20 s
 *   X c         context c becomes the thread's current one      N k  makes stream k anew      C c  makes context c anew
 *   P us        sleeps      T  stops the process (SIGSTOP)
 * Results are not looked at: some steps fail behind others, and a schedule goes on. */
#include "usage.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
enum { CONTEXTS = 48, STREAMS = 320, EVENTS = 4, FLAGS = 64, THREADS = 64, STEPS = 256, ROUND_NS = 100000, POLLS = 20000, SIGNAL_US = 700, STILL_S = 20, MEETING = 1 };
struct step {
    char what;
    unsigned long long a, b, c, d;
    CUgraphExec graph; /* of G, once it was launched */
    CUcontext of;      /* the context that the graph is of */
};
struct thread {
    int count;
    struct step steps[STEPS];
    pthread_t id;
    const struct step *volatile signalled; /* the step in which handlers launch */
    volatile unsigned long calls;          /* of such steps so far, odd within one */
    unsigned long calls_before;
    sigjmp_buf top;
    volatile unsigned long rounds;
};
static struct {
    CUcontext context;
    CUfunction spin, meet;
    CUstream streams[STREAMS];
    CUevent events[EVENTS];
} all[CONTEXTS];
static struct thread threads[THREADS];
static unsigned long long contexts, streams;
static CUdeviceptr flags;
static CUstream writer; /* in which flags come */
static unsigned rounds[FLAGS];
/* What this thread has launched on the stream that it captures. */
static __thread unsigned long long captured_stream;
static __thread size_t captured_launches;
static __thread struct thread *self;
static int has_signals, has_meetings;

static CUstream new_stream(unsigned long long number)
{
    CUstream made = NULL;
    cuStreamCreate(&made, number % 2 ? STREAM_NON_BLOCKING : 0);
    return made;
}
static const char RANKS_PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry vcuda_meet(.param .u64 who)\n{\n  ret;\n}\n"
                                ".visible .entry vcuda_spin_ns(.param .u64 ns)\n{\n  ret;\n}\n";
/* Makes a context with what belongs to it; it is current then. Contexts lie on the GPUs in turn. */
static void make_context(unsigned long long c)
{
    CUmodule code = module;
    CUdevice on;
    int gpus = 1;
    if (c) {
        OK(cuDeviceGetCount(&gpus));
        OK(cuDeviceGet(&on, (int)(c % gpus)));
        OK(cuCtxCreate_v2(&all[c].context, 0, on));
    } else
        all[c].context = context;
    OK(cuCtxSetCurrent(all[c].context));
    if (c || has_meetings) OK(cuModuleLoadData(&code, has_meetings ? RANKS_PTX : SPIN_PTX));
    if (has_meetings) OK(cuModuleGetFunction(&all[c].meet, code, "vcuda_meet"));
    OK(cuModuleGetFunction(&all[c].spin, code, "vcuda_spin_ns"));
    all[c].streams[0] = STREAM_LEGACY;
    all[c].streams[1] = STREAM_PER_THREAD;
    for (unsigned long long i = 2; i < streams; i++) all[c].streams[i] = new_stream(i);
    for (int i = 0; i < EVENTS; i++) OK(cuEventCreate(&all[c].events[i], i % 2 ? EVENT_DISABLE_TIMING : 0));
}
/* The context of stream k; current, if the stream is a default one. */
static unsigned long long context_of(unsigned long long k)
{
    unsigned long long c = k / streams % contexts;
    if (k % streams < 2) cuCtxSetCurrent(all[c].context);
    return c;
}
static CUstream stream_of(unsigned long long k) { return all[context_of(k)].streams[k % streams]; }
static CUevent event_of(unsigned long long e) { return all[e / EVENTS % contexts].events[e % EVENTS]; }
static CUresult kernel(const struct step *step)
{
    unsigned long long c = context_of(step->a), ns = step->c * 1000;
    void *params[] = {&ns};
    return cuLaunchKernel(all[c].spin, step->b, 1, 1, 1, 1, 1, 0, all[c].streams[step->a % streams], params, NULL);
}
static void meet(const struct step *step)
{
    unsigned long long c = context_of(step->a), who = step->c * 1000 | (unsigned long long)MEETING << 32 | step->b << 48;
    CUcontext before;
    void *params[] = {&who};
    cuCtxGetCurrent(&before);
    cuCtxSetCurrent(all[c].context);
    OK(cuLaunchKernel(all[c].meet, 1, 1, 1, 1, 1, 1, 0, all[c].streams[step->a % streams], params, NULL));
    cuCtxSetCurrent(before);
}
/* In virtual time a signal comes with the word on which the thread sleeps. */
static void on_signal(int number, siginfo_t *info, void *interrupted)
{
    const struct step *step = self ? self->signalled : NULL;
    (void)number, (void)interrupted;
    if (!step || !is_of_usage((unsigned long)info->si_value.sival_ptr)) return;
    self->signalled = NULL;
    kernel(step);
    if (step->what == 'J') siglongjmp(self->top, 1);
    self->signalled = step;
}
static void launch_signalled(const struct step *step)
{
    if (!sigsetjmp(self->top, 1))
        for (unsigned long long i = 0; i < step->d; i++) {
            self->signalled = step;
            self->calls++;
            kernel(step);
            self->calls++;
            self->signalled = NULL;
        }
    self->calls += self->calls % 2;
}
/* Signals a thread that is in the same launch at two looks: in virtual time it waits there. */
static void signal_for_ever(int count)
{
    for (;; usleep(SIGNAL_US))
        for (int i = 0; i < count; i++) {
            struct thread *thread = &threads[i];
            unsigned long calls = thread->calls;
            if (calls % 2 && calls == thread->calls_before && thread->signalled) pthread_kill(thread->id, SIGUSR1);
            thread->calls_before = calls;
        }
}
static void launch_graph(struct step *step)
{
    unsigned long long c = context_of(step->a), ns = step->c * 1000;
    if (!step->graph || step->of != all[c].context) {
        void *params[] = {&ns};
        KernelNodeParams node = {all[c].spin, step->b, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
        CUgraphNode last = NULL, next;
        CUgraph graph;
        CUcontext before;
        cuCtxGetCurrent(&before);
        cuCtxSetCurrent(all[c].context);
        cuGraphCreate(&graph, 0);
        for (unsigned long long i = 0; i < step->d; i++, last = next)
            cuGraphAddKernelNode_v2(&next, graph, last ? &last : NULL, last ? 1 : 0, &node);
        step->graph = NULL;
        cuGraphInstantiateWithFlags(&step->graph, graph, 0);
        cuGraphDestroy(graph);
        cuCtxSetCurrent(before);
        step->of = all[c].context;
    }
    if (step->graph) cuGraphLaunch(step->graph, all[c].streams[step->a % streams]);
}
static void end_capture(CUstream captured)
{
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    if (cuStreamEndCapture(captured, &graph) != SUCCESS || !graph) return;
    size_t nodes = 0;
    /* Others may launch thousands while the capture is open: how long such a graph takes, the script does not say. */
    int is_own = cuGraphGetNodes(graph, NULL, &nodes) == SUCCESS && nodes <= captured_launches;
    if (is_own && cuGraphInstantiateWithFlags(&made, graph, 0) == SUCCESS) {
        cuGraphLaunch(made, captured);
        cuGraphExecDestroy(made);
    }
    cuGraphDestroy(graph);
}
static void nap(void *us) { usleep((useconds_t)(uintptr_t)us); }
static void renew(unsigned long long k)
{
    if (k % streams < 2) return;
    unsigned long long c = context_of(k);
    cuStreamDestroy_v2(all[c].streams[k % streams]);
    cuCtxSetCurrent(all[c].context);
    all[c].streams[k % streams] = new_stream(k % streams);
}
static void renew_context(unsigned long long c)
{
    if (c % contexts == 0) return;
    cuCtxDestroy_v2(all[c % contexts].context);
    make_context(c % contexts);
}
static void between_polls(unsigned long long us)
{
    if (us) usleep(us);
    else sched_yield();
}
static void play(struct step *s)
{
    switch (s->what) {
    case 'L':
        if (s->a == captured_stream) captured_launches += s->d;
        for (unsigned long long i = 0; i < s->d; i++) kernel(s);
        break;
    case 'I':
    case 'J': launch_signalled(s); break;
    case 'G': launch_graph(s); break;
    case 'M': meet(s); break;
    case 'B':
        if (cuStreamBeginCapture_v2(stream_of(s->a), (int)s->b) != SUCCESS) break;
        captured_stream = s->a;
        captured_launches = 0;
        break;
    case 'E': end_capture(stream_of(s->a)); break;
    case 'R': cuEventRecord(event_of(s->b), stream_of(s->a)); break;
    case 'W': cuStreamWaitEvent(stream_of(s->a), event_of(s->b), 0); break;
    case 'Y': cuEventSynchronize(event_of(s->a)); break;
    case 'S': cuStreamSynchronize(stream_of(s->a)); break;
    case 'D': cuCtxSynchronize(); break;
    case 'Q':
        for (int i = 0; i < POLLS && cuStreamQuery(stream_of(s->a)) == NOT_READY; i++) between_polls(s->b);
        break;
    case 'O':
        for (int i = 0; i < POLLS && cuEventQuery(event_of(s->a)) == NOT_READY; i++) between_polls(s->b);
        break;
    case 'H': cuLaunchHostFunc(stream_of(s->a), nap, (void *)(uintptr_t)s->b); break;
    case 'V': cuStreamWaitValue32_v2(stream_of(s->a), flags + 4 * (s->b % FLAGS), ++rounds[s->b % FLAGS], 0); break;
    case 'U': cuStreamWriteValue32_v2(writer, flags + 4 * (s->a % FLAGS), rounds[s->a % FLAGS], 0); break;
    case 'X': cuCtxSetCurrent(all[s->a % contexts].context); break;
    case 'N': renew(s->a); break;
    case 'C': renew_context(s->a); break;
    case 'P': usleep(s->a); break;
    case 'T': raise(SIGSTOP); break;
    default: printf("FAIL no step %c\n", s->what), exit(1);
    }
}
static long long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}
static void *body(void *of)
{
    struct thread *thread = of;
    self = thread;
    cuCtxSetCurrent(all[0].context);
    for (;;) {
        long long begun = now_ns();
        for (int i = 0; i < thread->count; i++) play(&thread->steps[i]);
        /* A round without work must not take forever in virtual time. */
        if (now_ns() - begun < ROUND_NS) usleep(ROUND_NS / 1000);
        thread->rounds++;
    }
    return NULL;
}
/* Ends the process if a rank waits in the same round for too long. */
static void watch_for_ever(int count)
{
    unsigned long rounds[THREADS] = {0};
    long long since[THREADS];
    for (int i = 0; i < count; i++) since[i] = now_ns();
    for (;; usleep(500000))
        for (int i = 0; i < count; i++) {
            if (threads[i].rounds != rounds[i]) since[i] = now_ns();
            rounds[i] = threads[i].rounds;
            if (now_ns() - since[i] > STILL_S * 1000000000ll) exit(3);
        }
}
/* Reads the script; the number of threads. */
static int read_script(char *script)
{
    int count = -1, length;
    if (sscanf(script, "%llu %llu %n", &contexts, &streams, &length) != 2 || !contexts || contexts > CONTEXTS ||
        streams < 3 || streams > STREAMS)
        exit(64);
    for (char *word = strtok(script + length, " "); word; word = strtok(NULL, " ")) {
        if (*word == '|') count++;
        if (count < 0 || count >= THREADS || threads[count].count >= STEPS) exit(64);
        if (*word == '|') continue;
        struct step *step = &threads[count].steps[threads[count].count++];
        step->d = 1;
        has_signals |= *word == 'I' || *word == 'J';
        has_meetings |= *word == 'M';
        sscanf(word, "%c%llu,%llu,%llu,%llu", &step->what, &step->a, &step->b, &step->c, &step->d);
    }
    return count + 1;
}
static void meet_the_others(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, getpid());
    CHECK(!close(open(path, O_CREAT | O_WRONLY, 0600)));
    snprintf(path, sizeof path, "%s/go", folder);
    while (access(path, F_OK)) usleep(1000);
}
int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    int count = argc > 1 ? read_script(argv[1]) : 0;
    if (!count) return 64;
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    setup();
    OK(cuMemAlloc_v2(&flags, 4096));
    OK(cuMemsetD32_v2(flags, 0, FLAGS));
    OK(cuStreamCreate(&writer, STREAM_NON_BLOCKING));
    for (unsigned long long c = contexts; c-- > 0;) make_context(c);
    if (failures) return 1;
    printf("started\n");
    fflush(stdout);
    /* Ranks find each other before the first kernel waits. */
    if (has_meetings && argc > 2) meet_the_others(argv[2]);
    for (int i = !has_signals && !has_meetings; i < count; i++) CHECK(!pthread_create(&threads[i].id, NULL, body, &threads[i]));
    if (has_signals) find_usage(), signal_for_ever(count);
    if (has_meetings) watch_for_ever(count);
    body(&threads[0]);
    return 1;
}
