/* A library that stands before every function of LIST, one "X(name)" a line, as tracers and replacements do: at its first
 * call each asks dlsym for the function behind it. What dlsym itself calls by such a name never comes back. */
#define _GNU_SOURCE
#include <dlfcn.h>

static __thread unsigned depth __attribute__((tls_model("initial-exec")));
__attribute__((visibility("hidden"), used)) void *find_one(const char *name, void **kept)
{
    if (!*kept) {
        if (++depth > 20) __builtin_trap();
        *kept = dlsym(RTLD_NEXT, name);
        depth--;
        if (!*kept) __builtin_trap();
    }
    return *kept;
}
#define X(name)                                                                                                        \
    void *kept_##name __attribute__((visibility("hidden"), used));                                                     \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n"                                               \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"                              \
            "lea name_" #name "(%rip), %rdi\nlea kept_" #name "(%rip), %rsi\ncall find_one\nmov %rax, %r11\n"          \
            "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\njmp *%r11\n"                          \
            "name_" #name ": .asciz \"" #name "\"\n");
#include LIST
