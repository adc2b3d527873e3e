/* Threads of every kind: threads KIND. Ends with status 0 and "ok", or as the kind says. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_key_t key;
static pthread_barrier_t barrier;
static __thread int own = 5;
static int destroyed;
static void destroy(void *value) { __sync_fetch_and_add(&destroyed, value != NULL); }
static void *keyed(void *unused)
{
    pthread_setspecific(key, &destroyed);
    own++;
    pthread_barrier_wait(&barrier);
    return unused;
}
static void *sleeper(void *unused)
{
    for (;;) pause();
    return unused;
}
static void *last(void *unused)
{
    usleep(20000);
    printf("last thread\n");
    return unused;
}
static void at_exit(void) { printf("exit handler\n"); }
static int local_storage(void)
{
    pthread_t threads[40];
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&barrier, NULL, 41);
    for (int i = 0; i < 40; i++)
        if (pthread_create(&threads[i], NULL, keyed, NULL)) return 1;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 40; i++) pthread_join(threads[i], NULL);
    return destroyed != 40 || own != 5;
}
static int cancelled(void)
{
    pthread_t thread;
    void *result;
    for (int i = 0; i < 50; i++) {
        if (pthread_create(&thread, NULL, sleeper, NULL)) return 1;
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) return 2;
    }
    return 0;
}
static int small_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    if (pthread_create(&thread, &attributes, last, NULL)) return 1;
    return pthread_join(thread, NULL);
}
static int robust(void)
{
    static pthread_mutex_t mutex;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &attributes);
    pthread_t thread;
    pthread_create(&thread, NULL, (void *(*)(void *))pthread_mutex_lock, &mutex);
    pthread_join(thread, NULL);
    return pthread_mutex_lock(&mutex) != 130 /* EOWNERDEAD */;
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    int failed = 1;
    pthread_t thread;
    atexit(at_exit);
    if (!strcmp(kind, "local")) failed = local_storage();
    if (!strcmp(kind, "cancel")) failed = cancelled();
    if (!strcmp(kind, "small")) failed = small_stack();
    if (!strcmp(kind, "robust")) failed = robust();
    if (!strcmp(kind, "leave")) {
        pthread_create(&thread, NULL, last, NULL);
        pthread_detach(thread);
        pthread_exit(NULL);
    }
    if (!strcmp(kind, "alone")) pthread_exit(NULL);
    printf("%s %d\n", failed ? "failed" : "ok", failed);
    return failed;
}
