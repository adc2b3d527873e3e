"""Python's multiprocessing over a process that uses the GPU. Usage: forking.py fork|spawn|late
fork: a child of a parent with a context is refused by the driver and charged for nothing, and the parent goes on;
spawn: children begin anew and work; late: children forked before the parent uses the GPU work, all of them at once."""
import multiprocessing
import sys

from cuda.bindings import driver as cu

MIB = 1 << 20


def ok(result):
    code, *values = result
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values


def begin():
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(0))))))


def anew(bytes):
    begin()
    pointer = ok(cu.cuMemAlloc(bytes))
    free, total = ok(cu.cuMemGetInfo())
    assert total - free >= bytes
    ok(cu.cuMemFree(pointer))
    return "worked"


def refused(pointer):
    codes = [cu.cuInit(0)[0], cu.cuMemAlloc(MIB)[0], cu.cuMemFree(pointer)[0], cu.cuMemGetInfo()[0]]
    assert all(code == cu.CUresult.CUDA_ERROR_NOT_INITIALIZED for code in codes), codes
    return "refused"


if __name__ == "__main__":
    way = sys.argv[1]
    context = multiprocessing.get_context("spawn" if way == "spawn" else "fork")
    if way == "late":
        with context.Pool(2) as pool:
            assert pool.map(anew, [MIB, 2 * MIB] * 2) == ["worked"] * 4
            begin()
            pointer = ok(cu.cuMemAlloc(64 * MIB))
            assert pool.map(anew, [MIB] * 2) == ["worked"] * 2
    else:
        begin()
        pointer = ok(cu.cuMemAlloc(64 * MIB))
        before = ok(cu.cuMemGetInfo())
        child, argument = (refused, int(pointer)) if way == "fork" else (anew, 8 * MIB)
        for _ in range(3):
            with context.Pool(2) as pool:
                assert set(pool.map(child, [argument] * 4)) <= {"refused", "worked"}
        if way == "fork":
            assert ok(cu.cuMemGetInfo()) == before
    ok(cu.cuMemFree(pointer))
    print("passed", way)
