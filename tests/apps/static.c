/* A program without a loader and without a C library, of 64 or of 32 bits: no library can be put before it. */
#ifdef __x86_64__
#define CALL(number64, number32, a, b, c)                                                                              \
    ({                                                                                                                 \
        long r_;                                                                                                       \
        __asm__ volatile("syscall" : "=a"(r_) : "a"(number64), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");       \
        r_;                                                                                                            \
    })
#else
#define CALL(number64, number32, a, b, c)                                                                              \
    ({                                                                                                                 \
        long r_;                                                                                                       \
        __asm__ volatile("int $0x80" : "=a"(r_) : "a"(number32), "b"(a), "c"(b), "d"(c) : "memory");                   \
        r_;                                                                                                            \
    })
#endif
void _start(void)
{
    CALL(1, 4, 1, "alone\n", 6);
    CALL(60, 1, 5, 0, 0);
    __builtin_unreachable();
}
