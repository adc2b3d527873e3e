/* A library that stands before functions of the C library, as tracers do: -DNAME=... chooses which. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REAL(name) (real ? real : (real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)))
#define BEFORE(result, name, parameters, arguments)                                                                    \
    result name parameters                                                                                             \
    {                                                                                                                  \
        static __typeof__(&name) real;                                                                                 \
        return REAL(name) arguments;                                                                                   \
    }
#ifdef FILES
BEFORE(int, close, (int file), (file))
BEFORE(ssize_t, read, (int file, void *to, size_t bytes), (file, to, bytes))
BEFORE(ssize_t, write, (int file, const void *from, size_t bytes), (file, from, bytes))
BEFORE(void *, mmap, (void *at, size_t bytes, int how, int flags, int file, off_t from), (at, bytes, how, flags, file, from))
BEFORE(int, munmap, (void *at, size_t bytes), (at, bytes))
int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    return REAL(open)(path, flags, mode);
}
#endif
#ifdef WORDS
BEFORE(char *, getenv, (const char *name), (name))
BEFORE(size_t, strlen, (const char *text), (text))
BEFORE(int, strcmp, (const char *left, const char *right), (left, right))
BEFORE(int, memcmp, (const void *left, const void *right, size_t bytes), (left, right, bytes))
#endif
#ifdef THREADS
BEFORE(int, pthread_create, (pthread_t * thread, const pthread_attr_t *how, void *(*body)(void *), void *argument),
       (thread, how, body, argument))
BEFORE(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
BEFORE(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
BEFORE(pid_t, fork, (void), ())
#endif
#ifdef LOADER
BEFORE(int, dl_iterate_phdr, (int (*visit)(struct dl_phdr_info *, size_t, void *), void *data), (visit, data))
BEFORE(void *, dlopen, (const char *file, int how), (file, how))
BEFORE(int, dlclose, (void *library), (library))
BEFORE(int, dladdr, (const void *address, Dl_info *info), (address, info))
#endif
#ifdef LOOKUP
/* As libraries do that stand before dlsym itself: the real one comes from dlvsym. */
#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
void *dlsym(void *library, const char *name)
{
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", OLDEST);
    return real(library, name);
}
#endif
#ifdef HEAP
/* The first requests come from dlsym itself, before the real function is known. */
static char early[65536] __attribute__((aligned(16)));
static size_t used;
static void *from_early(size_t bytes)
{
    void *found = early + used;
    used += (bytes + 15) / 16 * 16;
    return used <= sizeof early ? found : NULL;
}
static int is_early(void *memory) { return (char *)memory >= early && (char *)memory < early + sizeof early; }
static __thread int asking __attribute__((tls_model("initial-exec")));
void *malloc(size_t bytes)
{
    static void *(*real)(size_t);
    if (asking) return from_early(bytes);
    asking = 1;
    REAL(malloc);
    asking = 0;
    return real(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    static void *(*real)(size_t, size_t);
    if (asking) return from_early(count * bytes);
    asking = 1;
    REAL(calloc);
    asking = 0;
    return real(count, bytes);
}
void free(void *memory)
{
    static void (*real)(void *);
    if (is_early(memory)) return;
    REAL(free)(memory);
}
#endif
