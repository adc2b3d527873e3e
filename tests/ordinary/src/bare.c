/* A dynamic program without the C library: the loader alone, -nostdlib. */
#ifdef __x86_64__
static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
void _start(void)
{
    call(1, 1, (long)"bare\n", 5);
    call(60, 3, 0, 0);
}
#endif
