"""CuPy: sums and a matrix product, its pool, an out-of-memory that is survived. Prints "NAME VALUE UNIT"; units "result" must
be the same with and without the shim."""
import cupy

free, total = cupy.cuda.runtime.memGetInfo()
assert free <= total
print("total", total, "bytes")
generator = cupy.random.RandomState(13)
a = generator.uniform(-1, 1, (1024, 1024)).astype(cupy.float32)
print("sum", float(cupy.arange(1_000_000, dtype=cupy.float64).sum()), "result")
print("product", float(cupy.abs(a @ a.T).mean()), "result")
print("sorted", float(cupy.sort(a.ravel())[12345]), "result")
try:
    cupy.empty(total + (1 << 30), dtype=cupy.uint8)
    raise SystemExit("more than everything was given")
except cupy.cuda.memory.OutOfMemoryError:
    pass
print("product_again", float(cupy.abs(a @ a.T).mean()), "result")
pool = cupy.get_default_memory_pool()
pool.free_all_blocks()
with cupy.cuda.Stream(non_blocking=True) as stream:
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
    a *= 2
    graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
print("after_graph", float(cupy.abs(a).mean()), "result")
print("passed CuPy", cupy.__version__)
