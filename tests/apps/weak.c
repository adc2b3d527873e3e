/* A function that the driver may lack, by a weak symbol, by dlsym and by cuGetProcAddress: prints whether each finds it (0 or 1). */
#include <dlfcn.h>
#include <stdio.h>
extern int cuInit(unsigned), cuGetProcAddress(const char *, void **, int, unsigned long long);
extern int cuLibraryUnload(void *) __attribute__((weak));
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
    int (*weak)(void *) = cuLibraryUnload;
    if (cuInit(0)) return 1;
    int is_told = cuGetProcAddress("cuLibraryUnload", &found, 11040, 0) == 0 && found;
    printf("%d %d %d\n", weak != NULL, dlsym(library, "cuLibraryUnload") != NULL, is_told);
    return 0;
}
