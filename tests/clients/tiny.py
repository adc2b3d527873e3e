"""tinygrad with DEV=CUDA: a tensor program to the end, an out-of-memory that is survived. Usage: tiny.py [LIMIT]"""
import sys
from tinygrad import Tensor, Device

assert Device.DEFAULT.startswith("CUDA"), Device.DEFAULT
a = Tensor.rand(64, 64)
b = Tensor.rand(64, 64)
out = (a @ b).relu().sum().realize()
assert out.shape == ()
copied = Tensor([1.0, 2.0, 3.0]).realize().tolist()
assert copied == [1.0, 2.0, 3.0], copied
if len(sys.argv) > 1:
    try:
        Tensor.empty(int(sys.argv[1])).contiguous().realize().uop.buffer.allocate()
        raise SystemExit("more than the quota was given")
    except (MemoryError, RuntimeError) as error:
        assert isinstance(error, MemoryError) or "memory" in str(error).lower(), error
    Tensor([1.0, 2.0]).realize()
print("passed tinygrad")
