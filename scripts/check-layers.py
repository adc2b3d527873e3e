#!/usr/bin/env python3
"""Checks the layers of the shim and of the simulated driver (`lib.rs` of each): a module uses its own layer and those below. In the
crates of CLEAN, no modules of the root use each other in a circle.

What does so all the same is listed here, each with its reason, and nothing else may. An exception that is not used any more is an
error too: the list only gets shorter.
"""
import pathlib
import re
import sys

# From top to bottom. In the shim `memory` and `compute` are side by side.
SHIM = {"hooks": 4, "memory": 3, "compute": 3, "runtime": 2, "interpose": 1, "driver": 0}
SIMULATOR = {"export": 3, "semantics": 2, "object": 1, "base": 0}
# Of the shim. The simulator needs none.
EXCEPTIONS = {
    ("driver/object_list.rs", "runtime"): "walks over loaded objects and forks wait for each other",
    ("interpose/dlsym.rs", "hooks"): "the table says which names are hooked",
}
# Crates without a circle. One that is freed of its circles is added.
CLEAN = [
    *("cli manager manager/api cluster plugin/kubelet-api simulator/nvml simulator/clock benches benches/program").split(),
    *("crates/cdi crates/daemon crates/driver-api crates/driver-open crates/limiter crates/quota").split(),
]
repository = pathlib.Path(__file__).resolve().parent.parent
used, failed = set(), False


def complain(text):
    global failed
    print(f"check-layers: {text}")
    failed = True


for tree, level, exceptions in (("shim/src", SHIM, EXCEPTIONS), ("simulator/src", SIMULATOR, {})):
    for path in sorted((repository / tree).rglob("*.rs")):
        name = path.relative_to(repository / tree).as_posix()
        layer = name.split("/")[0].removesuffix(".rs")
        if layer == "lib":
            continue
        if layer not in level:
            complain(f"{tree}/{name} is in no layer")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.lstrip().startswith("//"):
                continue
            if "crate::{" in line:
                complain(f"{tree}/{name}:{number}: one `use` a module, so that it can be read here")
            for other in re.findall(r"\bcrate::(\w+)", line):
                if other not in level or other == layer or level[other] < level[layer]:
                    continue
                if (name, other) in exceptions:
                    used.add((name, other))
                else:
                    complain(f"{tree}/{name}:{number}: {layer} uses {other}, which is not below it")
for name, other in sorted(EXCEPTIONS.keys() - used):
    complain(f"{name} does not use {other} any more: take it off the list")


def circle(uses, module):
    """The shortest way from a module through others back to it; None if there is none."""
    ways, seen = [[module]], set()
    for way in ways:
        for other in sorted(uses.get(way[-1], ())):
            if other == module:
                return [*way, module]
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return None


for crate in CLEAN:
    source, uses = repository / crate / "src", {}
    for path in source.rglob("*.rs"):
        names = path.relative_to(source).with_suffix("").parts
        if names[0] in ("lib", "main") or "tests" in names:
            continue
        text = re.sub(r"//.*", "", path.read_text().split("#[cfg(test)]")[0])
        used_here = set(re.findall(r"\bcrate::(\w+)", text))
        for group in re.findall(r"\bcrate::\{([^;]*)\};", text):
            used_here |= set(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\{[^}]*\}", "", group)))
        uses.setdefault(names[0], set()).update(used_here - {names[0]})
    for module in sorted(uses):
        found = circle(uses, module)
        if found and module == min(found):
            complain(f"{crate}: a circle of modules: {' -> '.join(found)}")
if not failed:
    print(f"check-layers: every module uses what is below it, but for {len(EXCEPTIONS)} exceptions")
    print(f"check-layers: no circle of modules in {', '.join(CLEAN)}")
sys.exit(failed)
