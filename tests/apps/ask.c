/* Asks for BYTES, prints "asked CODE", and asks again at each line on stdin: ask BYTES. */
#include "driver.h"
int main(int argc, char **argv)
{
    char line[64];
    (void)argc;
    setup();
    do {
        CUdeviceptr p;
        printf("asked %d\n", cuMemAlloc_v2(&p, strtoull(argv[1], NULL, 0)));
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin));
    return 0;
}
