/* Does what it is told, a line at a time, and says what came of it: "alloc BYTES" -> "alloc CODE", "free" (what was
 * allocated last) -> "free CODE", "info" -> "info CODE FREE TOTAL". Begins with "ready", ends with stdin. */
#include "driver.h"
int main(void)
{
    static CUdeviceptr held[1024];
    int count = 0;
    char line[64];
    setup();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "alloc ", 6)) {
            CUdeviceptr p = 0;
            CUresult code = cuMemAlloc_v2(&p, strtoull(line + 6, NULL, 0));
            if (code == SUCCESS && count < 1024) held[count++] = p;
            printf("alloc %d\n", code);
        } else if (!strncmp(line, "free", 4)) {
            printf("free %d\n", count ? cuMemFree_v2(held[--count]) : -1);
        } else {
            size_t left = 0, total = 0;
            CUresult code = cuMemGetInfo_v2(&left, &total);
            printf("info %d %zu %zu\n", code, left, total);
        }
        fflush(stdout);
    }
    return 0;
}
