/* A program with OpenMP threads and without CUDA: the sum of 0..N-1 modulo 7, and how many threads were counted. */
#include <omp.h>
#include <stdio.h>
int main(void)
{
    long sum = 0;
    int threads = 0;
#pragma omp parallel num_threads(3) reduction(+ : sum)
    {
#pragma omp for
        for (long i = 0; i < 3000000; i++) sum += i % 7;
#pragma omp atomic
        threads++;
    }
    printf("%ld %d\n", sum, threads);
    return 3;
}
