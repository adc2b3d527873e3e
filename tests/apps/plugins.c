/* A plugin that uses the driver by itself: plugins LIBRARY HOW LIMIT. HOW is plain, deep (RTLD_DEEPBIND), bare (by name
 * alone, through LD_LIBRARY_PATH, RTLD_DEEPBIND) or apart (dlmopen: a driver in a namespace of its own). It is refused what
 * is beyond LIMIT bytes (0: nothing is limited); apart, what it takes is at least charged to the program. With a fourth
 * argument it says so and waits for a line on stdin before it ends. */
#include "driver.h"
#include <unistd.h>
const char *plugin_name(void) { return "program"; }
static int links(const char *name) { return name && strcmp(name, "plugin") == 0; }
int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    size_t limit = strtoull(argv[3], NULL, 0), before, after, total;
    int apart = strcmp(argv[2], "apart") == 0, deep = strcmp(argv[2], "plain") != 0;
    setup();
    OK(cuMemGetInfo_v2(&before, &total));
    void *plugin = apart ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_LAZY) : dlopen(argv[1], RTLD_LAZY | (deep ? RTLD_DEEPBIND : 0));
    if (!plugin) return printf("FAIL %s\n", dlerror()), 1;
    int (*alloc)(unsigned long long *, size_t, int) = (int (*)(unsigned long long *, size_t, int))dlsym(plugin, "plugin_alloc");
    const char *(*calls)(void) = (const char *(*)(void))dlsym(plugin, "plugin_calls");
    CUdeviceptr p = 7;
    /* Other names keep the meaning that the flag gave them. */
    CHECK(links(calls()) == deep);
    if (apart) {
        OK(alloc(&p, (size_t)700 << 20, 0));
        /* Measured within the next looks, four a second. */
        for (int i = 0; i < 40; i++) {
            OK(cuMemGetInfo_v2(&after, &total));
            if (!limit || before - after >= ((size_t)700 << 20)) break;
            usleep(100000);
        }
        CHECK(!limit || before - after >= ((size_t)700 << 20));
        if (limit) EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&p, after + 1));
        /* The way back is open: what fits is granted. */
        OK(cuMemAlloc_v2(&p, 16 << 20));
    } else {
        for (int pointer = 0; pointer < 2; pointer++) {
            if (limit) EXPECT(OUT_OF_MEMORY, alloc(&p, limit, pointer));
            OK(cuMemGetInfo_v2(&before, &total));
            OK(alloc(&p, 8 << 20, pointer));
            OK(cuMemGetInfo_v2(&after, &total));
            CHECK(before - after == 8 << 20);
        }
    }
    if (argc > 4) {
        printf("took\n");
        fflush(stdout);
        getchar();
    }
    return finish("plugins");
}
