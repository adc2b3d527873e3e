/* A library that stands before the loader's functions and says so, as tracers do that follow what is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *dlopen(const char *file, int how)
{
    static void *(*real)(const char *, int);
    if (!real) real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    fprintf(stderr, "dlopen %s\n", file ? file : "the program");
    return real(file, how);
}
int dlclose(void *library)
{
    static int (*real)(void *);
    if (!real) real = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
    fprintf(stderr, "dlclose\n");
    return real(library);
}
void *dlvsym(void *library, const char *name, const char *version)
{
    static void *(*real)(void *, const char *, const char *);
    if (!real) real = (void *(*)(void *, const char *, const char *))dlsym(RTLD_NEXT, "dlvsym");
    fprintf(stderr, "dlvsym %s %s\n", name, version);
    return real(library, name, version);
}
