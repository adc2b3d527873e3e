/* What the loader offers: loads KIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int objects, shims;
static int visit(struct dl_phdr_info *info, size_t bytes, void *data)
{
    shims += strstr(info->dlpi_name, "vcuda_shim") != NULL;
    objects++;
    return data != NULL || bytes < sizeof(struct dl_phdr_info);
}
static const char *answer(void *found)
{
    const char *error = dlerror();
    if (found) return "found";
    return error ? strrchr(error, ':') : "null";
}
static void look_ups(void)
{
    void *maths = dlopen("libm.so.6", RTLD_NOW), *program = dlopen(NULL, RTLD_LAZY);
    const char *names[] = {"cos", "malloc", "main", "dlsym", "no_such_name", "cu", "cuda", "nv", ""};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        printf("%s", names[i]);
        printf(" %s", answer(dlsym(RTLD_DEFAULT, names[i])));
        printf(" %s", answer(dlsym(RTLD_NEXT, names[i])));
        printf(" %s", answer(dlsym(maths, names[i])));
        printf(" %s\n", answer(dlsym(program, names[i])));
    }
    printf("%s\n", answer(dlvsym(maths, "cos", "GLIBC_2.2.5")));
    printf("%s\n", answer(dlvsym(maths, "cos", "GLIBC_9")));
    printf("%s\n", answer(dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5")));
    printf("%s\n", answer(dlopen("libnothing.so.9", RTLD_NOW)));
    printf("%s\n", answer(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)));
    printf("%d\n", dlclose(maths));
}
static void namespaces(void)
{
    Lmid_t id = 0;
    void *maths = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
    double (*cosine)(double) = maths ? (double (*)(double))dlsym(maths, "cos") : NULL;
    printf("%f %d\n", cosine ? cosine(0) : 0, dlinfo(maths, RTLD_DI_LMID, &id) == 0 && id != LM_ID_BASE);
    printf("%d\n", dlclose(maths));
    maths = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
    cosine = (double (*)(double))dlsym(maths, "cos");
    printf("%f\n", cosine(0));
    maths = dlmopen(LM_ID_BASE, "libm.so.6", RTLD_NOW);
    printf("%s\n", answer(dlsym(maths, "sin")));
}
static void many_times(void)
{
    for (int i = 0; i < 3000; i++) {
        void *maths = dlopen("libm.so.6", RTLD_NOW);
        if (!maths || !dlsym(maths, "tan") || dlsym(maths, "no_such_name") || dlclose(maths)) abort();
    }
    printf("3000 times\n");
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    Dl_info where;
    if (!strcmp(kind, "names")) look_ups();
    if (!strcmp(kind, "namespaces")) namespaces();
    if (!strcmp(kind, "often")) many_times();
    if (!strcmp(kind, "walk")) {
        dl_iterate_phdr(visit, NULL);
        printf("%d objects without the shim\n", objects - shims);
        printf("%d %s\n", dladdr((void *)puts, &where) != 0, where.dli_sname ? "named" : "not named");
    }
    return 0;
}
