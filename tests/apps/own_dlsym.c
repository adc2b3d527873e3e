/* A program with a dlsym of its own, which all libraries of the process use: "looked up N", how often "cuInit" was looked up
 * while cuInit ran. dlsym(3); the ELF rules for symbols that a program defines. */
#include "driver.h"
static int lookups;
void *dlsym(void *restrict handle, const char *restrict name)
{
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!strcmp(name, "cuInit")) lookups++;
    return real(handle, name);
}
int main(void)
{
    driver_open();
    lookups = 0;
    OK(cuInit(0));
    printf("looked up %d\n", lookups);
    return failures ? 1 : 0;
}
