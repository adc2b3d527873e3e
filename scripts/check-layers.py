#!/usr/bin/env python3
"""Checks the layers of the shim (shim/src/lib.rs): a module uses its own layer and those below.

What does so all the same is listed here, each with its reason, and nothing else may. An exception that is not used any more is an
error too: the list only gets shorter.
"""
import pathlib
import re
import sys

# From top to bottom. `memory` and `compute` are side by side.
LEVEL = {"hooks": 4, "memory": 3, "compute": 3, "runtime": 2, "interpose": 1, "driver": 0}
EXCEPTIONS = {
    ("compute/graph_cost.rs", "memory"): "a graph's cost and its memory are found in one walk over its nodes",
    ("driver/object_list.rs", "runtime"): "walks over loaded objects and forks wait for each other",
    ("driver/real/own.rs", "hooks"): "names of functions are made as the table makes them",
    ("interpose/dlsym.rs", "hooks"): "the table says which names are hooked",
    ("memory/overhead/gpu.rs", "hooks"): "the shim's own calls of hooked functions, by the slots of the table",
    ("memory/overhead/nvml.rs", "hooks"): "as above",
    ("memory/overhead/probe.rs", "hooks"): "as above",
    ("memory/overhead/unseen_contexts.rs", "hooks"): "as above",
    ("memory/pool_accounts/account.rs", "hooks"): "as above",
    ("runtime/devices.rs", "hooks"): "as above",
    ("runtime/shim.rs", "compute"): "the state of the process has the parts of both sides",
    ("runtime/shim.rs", "memory"): "as above",
    ("runtime/shim.rs", "hooks"): "as above: green contexts",
    ("runtime/worker.rs", "compute"): "the one thread settles what was measured",
}
root = pathlib.Path(__file__).resolve().parent.parent / "shim" / "src"
used, failed = set(), False
for path in sorted(root.rglob("*.rs")):
    name = path.relative_to(root).as_posix()
    layer = name.split("/")[0].removesuffix(".rs")
    if layer not in LEVEL:
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("//"):
            continue
        for other in re.findall(r"\bcrate::(\w+)", line):
            if other not in LEVEL or other == layer or LEVEL[other] < LEVEL[layer]:
                continue
            if (name, other) in EXCEPTIONS:
                used.add((name, other))
            else:
                print(f"check-layers: shim/src/{name}:{number}: {layer} uses {other}, which is not below it")
                failed = True
for name, other in sorted(EXCEPTIONS.keys() - used):
    print(f"check-layers: {name} does not use {other} any more: take it off the list")
    failed = True
if not failed:
    print(f"check-layers: every module uses what is below it, but for {len(EXCEPTIONS)} exceptions")
sys.exit(failed)
