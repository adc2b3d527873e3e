#!/usr/bin/env python3
"""Runs every test of the workspace, as `cargo test --workspace` does, but as many test binaries at a time as there are processors.

Cargo runs one after the other, and most of the time tests wait for processes. Each binary gets what cargo gives it: the folder of
its crate, and CARGO_MANIFEST_DIR. Its output is printed whole when it has ended, with its time. All run, also after a failure;
the last lines name those that failed, and the status is 1 then.

    scripts/run-tests.py [NAME...]      only the binaries of these names, such as `quota`, without the documentation's tests
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LANES = os.cpu_count() or 1
# Threads of each binary. Most tests wait: all lanes together run more of them than there are processors.
THREADS = os.environ.get("RUST_TEST_THREADS", str(LANES + 1))
# What takes longest begins first, so that at the end no lane waits for it. The others follow in cargo's order.
LONGEST = (
    "suspend plugin_races nonsense schedule_fuzz memory_fuzz ordinary storm stepped overhead bench manager_audit manager_upgrade"
    " accuracy vcuda_machine uncharged devices acceptance vcuda_manager manager_rest"
).split()


def built():
    """Builds the test binaries. Yields of each the name, the file, the folder of the crate, and the source in that folder."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    for message in map(json.loads, done.stdout.splitlines()):
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            source = Path(message["target"]["src_path"]).relative_to(folder)
            yield message["target"]["name"], message["executable"], folder, source


def run(file, folder):
    """Runs a binary. Returns whether it passed, its output, and its seconds: by the clock, and of processors."""
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(folder), "RUST_TEST_THREADS": THREADS}
    begun = time.monotonic()
    # A file, not a pipe: a daemon that a test leaves behind would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen([file], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    return child.returncode == 0, said, time.monotonic() - begun, usage.ru_utime + usage.ru_stime


def lane(waiting, failed, lock):
    """Runs waiting binaries, one after the other, until none is left."""
    while True:
        with lock:
            if not waiting:
                return
            _, file, folder, source = waiting.pop(0)
        passed, said, wall_s, processor_s = run(file, folder)
        with lock:
            print(f"\n     Running {folder.name}/{source}: {wall_s:.1f} s, {processor_s:.1f} s of processors", flush=True)
            sys.stdout.buffer.write(said)
            sys.stdout.flush()
            if not passed:
                failed.append(f"{folder.name}/{source}")


def main():
    names = sys.argv[1:]
    binaries = [binary for binary in built() if not names or binary[0] in names]
    missing = set(names) - {binary[0] for binary in binaries}
    if missing:
        sys.exit(f"run-tests: no test binary is called {', '.join(sorted(missing))}: `cargo test -p CRATE --no-run` lists them")
    waiting = sorted(binaries, key=lambda binary: LONGEST.index(binary[0]) if binary[0] in LONGEST else len(LONGEST))
    failed, lock = [], threading.Lock()
    lanes = [threading.Thread(target=lane, args=(waiting, failed, lock), daemon=True) for _ in range(LANES)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    if not names and subprocess.run(["cargo", "test", "--workspace", "--doc"], check=False).returncode:
        failed.append("the documentation's tests")
    for one in failed:
        print(f"run-tests: FAILED {one}")
    sys.exit(1 if failed else 0)


main()
