/* Operations on device memory at random, in one of several processes: fuzz_memory SEED FAMILIES PAGE FOLDER PLACE.
 * FAMILIES is a sum of what may be done (fuzz/base.h). PAGE is the file by which the test steers its processes and
 * counts what they do. FOLDER holds a socket for each process, by its PLACE below 16. With a family sum of 0 it is a
 * process without CUDA that keeps descriptors and passes them on. Prints "started" when its context is there. Told to end,
 * it frees everything but its context, says so in the page, and asks for free memory until it is killed. */
#include "fuzz/shared.h"
#include "fuzz/signals.h"

static void drop(Thread *t, Held *h)
{
    switch (h->kind) {
    case NOTHING: break;
    case LINEAR:
        if (one_in(&t->seed, 4)) MUST(cuMemFreeAsync(h->address, some_stream(t)));
        else INSIST(cuMemFree_v2(h->address));
        break;
    case POOLED: free_pooled(t, h->address); break;
    case IMPORTED_BLOCK: /* a pool ends after what was imported from it */
        if (one_in(&t->seed, 2)) INSIST(cuMemFree_v2(h->address));
        else MUST(cuMemFreeAsync(h->address, t->streams[0]));
        MUST(cuStreamSynchronize(t->streams[0]));
        MUST(cuMemPoolDestroy(h->object));
        break;
    case MAPPED: case HANDLE: free_mapped(t, h); break;
    case ARRAY: case SPARSE: MUST(cuArrayDestroy(h->object)); break;
    case MIPMAP: MUST(cuMipmappedArrayDestroy(h->object)); break;
    case GRAPH: MUST(cuGraphExecDestroy(h->object)); break;
    case OPENED: MUST(cuIpcCloseMemHandle(h->address)); break;
    case EXTERNAL:
        INSIST(cuMemFree_v2(h->address));
        MUST(cuDestroyExternalMemory(h->object));
        break;
    }
    *h = (Held){0};
}

static void make(Thread *t, Held *h)
{
    unsigned family = 1u << draw(&t->seed) % 12;
    if (!(families & family)) return;
    switch (family) {
    case LINEARS: make_linear(t, h); break;
    case POOLS: make_pooled(t, h); break;
    case PHYSICAL: make_mapped(t, h); break;
    case ARRAYS: make_array(t, h); break;
    case GRAPHS: make_graph(t, h); break;
    case IPC: case FILES: case EXTERNALS: case SHARED_POOLS: take(t, h); break;
    case CONTEXTS: if (one_in(&t->seed, 4)) use_context(t); break;
    case FORKS: if (one_in(&t->seed, 16)) fork_child(t); break;
    case MULTICASTS: use_multicast(t); break;
    }
}

static void replace_stream(Thread *t)
{
    CUstream *stream = &t->streams[draw(&t->seed) % (STREAMS - 1)];
    MUST(cuStreamDestroy_v2(*stream));
    MUST(cuStreamCreate(stream, STREAM_NON_BLOCKING));
}

static void step(Thread *t)
{
    Held *h = &t->held[draw(&t->seed) % HELD];
    size_t left, total;
    switch (draw(&t->seed) % 32) {
    case 0: MUST(cuMemGetInfo_v2(&left, &total)); break;
    case 1: MUST(cuStreamSynchronize(some_stream(t))); break;
    case 2: case 3: if (families & POOLS) tend_pool(t); break;
    case 4: if (one_in(&t->seed, 4)) replace_stream(t); break;
    case 5: if (families & GRAPHS && one_in(&t->seed, 4)) MUST(cuDeviceGraphMemTrim(device)); break;
    case 6: double_file(&t->seed); break;
    case 7: keep_file(&t->seed, -1); break;
    case 8: case 9: case 10: case 11: case 12: pass_on(t, h); break;
    default:
        if (h->kind == GRAPH && !one_in(&t->seed, 3)) launch_graph(t, h);
        else if (h->kind) drop(t, h);
        else make(t, h);
    }
}

static void park(void)
{
    page->of[place].parked++;
    while (page->command == PARK) usleep(200);
    page->of[place].parked--;
}
static void *run(void *argument)
{
    Thread *t = argument;
    self = t;
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < STREAMS - 1; i++) MUST(cuStreamCreate(&t->streams[i], STREAM_NON_BLOCKING));
    while (page->command < END) {
        if (page->command == PARK) park();
        if (!sigsetjmp(t->top, 1)) step(t);
        t->calls += t->calls % 2;
        page->of[place].done++;
    }
    self = NULL;
    for (int i = 0; i < HELD; i++) drop(t, &t->held[i]);
    for (int i = 0; i < HANDLER_HELD; i++) drop(t, &t->handler_held[i]);
    for (int i = 0; i < OWN_POOLS; i++) end_pool(t, i);
    for (int i = 0; i < STREAMS; i++) MUST(cuStreamSynchronize(t->streams[i]));
    return NULL;
}

/* Keeps descriptors, and passes them on. */
static void keep(unsigned *seed)
{
    Word word;
    int file;
    while (page->command < END) {
        if (page->command == PARK) {
            page->of[place].parked = THREADS;
            while (page->command == PARK) usleep(200);
            page->of[place].parked = 0;
        }
        usleep(500);
        if (one_in(seed, 8)) keep_file(seed, -1);
        if (!hear(&word, &file) || file < 0) continue;
        if (one_in(seed, 2)) tell(seed, &word, file);
        keep_file(seed, file);
        page->of[place].done++;
    }
}

/* A context, as soon as the others leave room for one. */
static void begin(void)
{
    CUresult code;
    driver_open();
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    while ((code = cuDevicePrimaryCtxRetain(&context, device)) == OUT_OF_MEMORY) usleep(1000);
    OK(code);
    OK(cuCtxSetCurrent(context));
    while ((code = cuModuleLoadData(&module, CODE)) == OUT_OF_MEMORY) usleep(1000);
    OK(code);
    OK(cuModuleGetFunction(&spin, module, "vcuda_spin_ns"));
    if (failures) exit(finish("begin"));
}

static void fuzz(unsigned seed)
{
    pthread_t running[THREADS];
    CUmemoryPool pool;
    uint64_t nothing = 0;
    begin();
    printf("started\n");
    fflush(stdout);
    for (int i = 0; i < THREADS; i++) {
        threads[i].seed = seed * 2654435761u + i * 40503u + 1;
        threads[i].handler_seed = ~threads[i].seed;
        pthread_create(&running[i], NULL, run, &threads[i]);
        threads[i].id = running[i];
    }
    if (families & SIGNALS) signal_until_the_end();
    for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &nothing));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuDeviceGraphMemTrim(device));
    if (failures) exit(finish("end"));
}

int main(int argc, char **argv)
{
    size_t left, total;
    if (argc < 6) return 2;
    unsigned seed = strtoul(argv[1], NULL, 0) + 1;
    int file = open(argv[3], O_RDWR | O_CLOEXEC);
    families = strtoul(argv[2], NULL, 0);
    folder = argv[4];
    place = atoi(argv[5]) % PROCESSES;
    page = mmap(NULL, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) return 2;
    close(file);
    listen_to_others();
    if (families) {
        fuzz(seed);
    } else {
        printf("started\n");
        fflush(stdout);
        keep(&seed);
    }
    close_all_files();
    while (wait(NULL) > 0) {}
    page->of[place].has_ended = 1;
    while (page->command != ASK) usleep(1000);
    /* What others sent before they ended. */
    close_all_files();
    /* Descriptors are closed everywhere soon: an answer about memory finds that nothing is held by them any more. */
    for (;; usleep(100000)) {
        if (families) MUST(cuMemGetInfo_v2(&left, &total));
        page->of[place].has_ended = 2;
    }
}
