/* A function X(name) that jumps to the one that `find_one` finds for its name, with its arguments untouched. */
#define X(name)                                                                                                        \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n"                                               \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\nsub $8, %rsp\n"                           \
            "lea name_" #name "(%rip), %rdi\ncall find_one\n"                                                          \
            "add $8, %rsp\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\njmp *%rax\n"                      \
            "name_" #name ": .asciz \"" #name "\"\n");
