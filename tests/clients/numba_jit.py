"""numba-cuda: jit, launch, an out-of-memory that is raised and survived. Usage: numba_jit.py [LIMIT]"""
import sys
import numpy
from numba import cuda


@cuda.jit
def vcuda_noop(x):
    pass


array = cuda.to_device(numpy.arange(1024, dtype=numpy.float32))
vcuda_noop[1, 32](array)
cuda.synchronize()
assert (array.copy_to_host() == numpy.arange(1024, dtype=numpy.float32)).all()
limit = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 46
free, total = cuda.current_context().get_memory_info()
if len(sys.argv) > 1:
    assert total == limit, total
try:
    cuda.device_array(limit + 1, dtype=numpy.uint8)
    raise SystemExit("more than everything was given")
except cuda.cudadrv.driver.CudaAPIError as error:
    assert "OUT_OF_MEMORY" in str(error), error
again = cuda.device_array(1 << 20, dtype=numpy.uint8)
print("passed numba-cuda")
