"""cuda-bindings: allocate, copy, free, memory info; an out-of-memory that is survived. Usage: bindings.py [LIMIT]"""
import sys
from cuda.bindings import driver as cu


def ok(result):
    code, *values = result
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values


ok(cu.cuInit(0))
device = ok(cu.cuDeviceGet(0))
context = ok(cu.cuDevicePrimaryCtxRetain(device))
ok(cu.cuCtxSetCurrent(context))
free, total = ok(cu.cuMemGetInfo())
if len(sys.argv) > 1:
    assert total == int(sys.argv[1]), total
data = bytes(range(256)) * 16
pointer = ok(cu.cuMemAlloc(len(data)))
ok(cu.cuMemcpyHtoD(pointer, data, len(data)))
back = bytearray(len(data))
ok(cu.cuMemcpyDtoH(back, pointer, len(data)))
assert bytes(back) == data
code, _ = cu.cuMemAlloc(total + 1)
assert code == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
again = ok(cu.cuMemAlloc(1 << 20))
ok(cu.cuMemFree(again))
ok(cu.cuMemFree(pointer))
print("passed cuda-bindings")
