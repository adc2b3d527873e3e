/* Descriptors of address ranges, for other drivers. CUDA Driver API: cuMemGetHandleForAddressRange. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,                                             \
      (void *, CUdeviceptr, size_t, int, unsigned long long))
#include "../driver.h"
#include "answers.h"
#include "second.h"
#include <fcntl.h>
enum { DMA_BUF = 1, DMA_BUF_SUPPORTED = 124 };
#define SIZE (64ul << 20)

int main(void)
{
    setup();
    CUdeviceptr p = 0;
    unsigned first = 0;
    int fd = -1, supported = 0;
    size_t alone = free_bytes();
    OK(cuDeviceGetAttribute(&supported, DMA_BUF_SUPPORTED, device));
    OK(cuMemAlloc_v2(&p, SIZE));
    OK(cuMemsetD32_v2(p, 0x44444444, 1));
    OK(cuCtxSynchronize());
    tell("range_dma_buf_supported", (unsigned long long)supported, "boolean");
    CUresult code = told("range_dma_buf", cuMemGetHandleForAddressRange(&fd, p, SIZE, DMA_BUF, 0));
    if (!supported) {
        CHECK(code != SUCCESS);
        printf("skip: no dma-bufs\n");
        return failures ? finish("range") : 77;
    }
    CHECK(code == SUCCESS && fcntl(fd, F_GETFD) >= 0 && free_bytes() == alone - SIZE);
    OK(cuMemcpyDtoH_v2(&first, p, sizeof first));
    CHECK(first == 0x44444444);
    close(fd);
    if (is_simulated()) EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(NULL, p, SIZE, DMA_BUF, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p, SIZE, 9, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p, 100, DMA_BUF, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p + 100, 4096, DMA_BUF, 0));
    EXPECT(INVALID_VALUE, cuMemGetHandleForAddressRange(&fd, p, 2 * SIZE, DMA_BUF, 0));
    /* Whether it keeps memory that is freed, nothing documents. */
    OK(cuMemGetHandleForAddressRange(&fd, p, SIZE, DMA_BUF, 0));
    OK(cuMemFree_v2(p));
    tell("range_dma_buf_keeps", alone - free_bytes(), "bytes");
    close(fd);
    CHECK(free_becomes(alone));
    return finish("range");
}
