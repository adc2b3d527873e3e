/* The addresses of the tenant's `usage`, on whose words a launch sleeps while it waits for its share of the GPU's time. A signal handler
 * that finds its thread anywhere else may be within a lock of the driver or of the C library: no program may call either there. */
#ifndef VCUDA_TESTS_USAGE_H
#define VCUDA_TESTS_USAGE_H
#include "driver.h"
#include <string.h>

/* From and to. */
static unsigned long usage[2];

static void find_usage(void)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char *name = strrchr(line, '/');
        if (!name || strcmp(name, "/usage\n") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
        if (!usage[0] || from < usage[0]) usage[0] = from;
        if (to > usage[1]) usage[1] = to;
    }
    CHECK(!fclose(maps));
}
static int is_of_usage(unsigned long word) { return word >= usage[0] && word < usage[1]; }
#endif
