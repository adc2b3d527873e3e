"""Scenarios of a node in trouble: a full disk, containerd frozen, a namespace deleted under its pods, crash loops under restarts of the
chart."""
import time

from cluster import CHUNK, NAMESPACE, Fault, container, deployment, pod, states
from pods import crashed_starts, now_in

FOLDER, FILLER = "/run/cdi", "/run/cdi/filler"


def remounted(cluster, *words):
    """Mounts or unmounts a small disk at the folder. Who looks there sees it after a restart."""
    cluster.node("run", *words)
    cluster.node("stop", "containerd")
    cluster.node("start", "containerd")
    cluster.wait(60, "containerd answers", lambda: cluster.node("run", "ctr", "version"))
    cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all")
    cluster.chart()


def fill(cluster, pages):
    """All of the disk is used, but for these pages of 4 KiB."""
    cluster.node("run", "sh", "-c", f"left=$(df --output=avail -k {FOLDER} | tail -n 1); head -c $(((left / 4 - {pages}) * 4096)) /dev/zero >{FILLER}")


def refused_while_full(cluster, pages):
    """Pods that start meanwhile wait and say why, one that is deleted leaves nothing, the others run once there is space. Seconds of that."""
    kind = f"full-{pages}"
    made = [pod(f"{kind}-{number}", container(memory=4 + number, cores=5 + number), restartPolicy="Always") for number in range(3)]
    made.append(pod(f"{kind}-two", [container("app", memory=4, cores=5), container("beside", memory=8, cores=7)], restartPolicy="Always"))
    names = [one["metadata"]["name"] for one in made]
    fill(cluster, pages)
    try:
        cluster.create(made)
        # The space that is left is enough for a part of some pod's files.
        full = lambda: [name for name in names if "is full: free some space there" in cluster.said(name)]
        cluster.wait(90, "each says that the folder is full", lambda: full() == names)
        cluster.kubectl("delete", "pod", names[0], "--wait=false")
        cluster.wait(60, f"{names[0]} is gone", lambda: names[0] not in cluster.pods())
    finally:
        cluster.node("run", "rm", "-f", FILLER)
    seconds = cluster.wait_phase(names[1:], {"Running", "Failed"}, 200)
    return seconds, len(made), cluster.wrong_limits(made[1:]) + cluster.untouched(names[1:])


def full_disk(cluster):
    """No space under the folder of specifications, then for one page: pods wait, those that run follow annotations, nothing stays."""
    remounted(cluster, "mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", FOLDER)
    faults, longest, pods = [], 0.0, 1
    try:
        before = pod("before", container(memory=8, cores=10), restartPolicy="Always")
        cluster.create([before])
        cluster.wait_phase(["before"], {"Running"})
        for pages, memory in ((0, 1), (1, 2)):
            seconds, made, wrong = refused_while_full(cluster, pages)
            longest, pods, faults = max(longest, seconds), pods + made, faults + wrong
            cluster.kubectl("annotate", "--overwrite", "pod", "before", f"vcuda.io/memory={memory}Gi")
            cluster.wait(30, f"it has {memory} GiB", lambda: now_in(cluster, "before") == [(memory << 30, 100)])
        faults += cluster.wrong_limits([before]) + cluster.untouched(["before"])
        cluster.remove_all()
        try:
            cluster.wait(60, "nothing is left", lambda: not cluster.left_behind())
        except Fault:
            faults.append(f"left behind: {cluster.left_behind()}")
    finally:
        cluster.remove_all()
        remounted(cluster, "umount", FOLDER)
    return {"pods": pods, "ran after there was space after": f"{longest:.0f} s"}, faults


def namespace(cluster):
    """A namespace is deleted under running pods, waiting pods and claims: all of it goes, others are not touched, and the place is free."""
    name, share = "doomed", container(memory=64, cores=40)
    inside = [deployment("kept", 4, pod("", share)), *(pod(f"bare-{number}", share) for number in range(4)),
              *(pod(f"waits-{number}", container(memory=300, cores=90)) for number in range(8))]
    for one in inside:
        one["metadata"]["namespace"] = name
    other = pod("other", container(memory=4, cores=5))
    cluster.create([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    running = lambda: [one for one, found in cluster.pods(name).items() if states(found)[0] == "Running" and not one.startswith("waits")]
    try:
        cluster.create([other] + inside[:5])
        cluster.wait(120, "8 pods run", lambda: len(running()) == 8)
        cluster.wait_phase(["other"], {"Running"})
        cluster.create(inside[5:])
        time.sleep(5)
        faults = [f"{one} has {now_in(cluster, one, namespace=name)}" for one in running() if now_in(cluster, one, namespace=name) != [(16 << 30, 400)]]
        grants = len(cluster.grants())
    finally:
        begun = time.monotonic()
        cluster.kubectl("delete", "namespace", name, "--wait=false")
    gone = lambda: not cluster.kubectl("get", "namespace", name, "--ignore-not-found", "-o", "name")
    try:
        cluster.wait(120, "the namespace is gone", gone)
        took = time.monotonic() - begun
        freed = cluster.wait(60, "one grant is left", lambda: len(cluster.grants()) == 1)
    except Fault as fault:
        raise Fault(f"{fault}; {cluster.kubectl('get', 'namespace', name, '-o', 'json')[-1500:]}") from None
    cluster.templates = {key for key in cluster.templates if key[0] != name}
    again = [pod(f"again-{number}", container(memory=300, cores=90)) for number in range(5)]
    cluster.create(again)
    cluster.wait_phase([one["metadata"]["name"] for one in again], {"Running", "Failed"}, 120)
    faults += cluster.wrong_limits(again + [other]) + cluster.untouched(["other"])
    return {"pods": len(inside) + len(again) + 4, "grants": grants, "gone after": f"{took:.0f} s", "grants free": f"{freed:.0f} s later"}, faults


def frozen(cluster):
    """containerd is frozen for 60 s while pods start and end: then all have their limits, those that run were not touched."""
    share = lambda number: container(memory=4 + number, cores=5 + number)
    stay, go = ([pod(f"{kind}-{number}", share(number)) for number in range(4)] for kind in ("stay", "go"))
    cluster.create(stay + go)
    names = [one["metadata"]["name"] for one in stay]
    cluster.wait_phase(names + [one["metadata"]["name"] for one in go], {"Running"})
    faults = cluster.wrong_limits(stay + go)
    process = (cluster.folder / "state/services/containerd").read_text().strip()
    new = [pod(f"new-{number}", share(number)) for number in range(8)]
    # Some are on their way already.
    cluster.create(new[:4])
    cluster.node("run", "kill", "-STOP", process)
    try:
        begun = time.monotonic()
        cluster.create(new[4:])
        for one in go + new[3:5]:
            cluster.kubectl("delete", "pod", one["metadata"]["name"], "--wait=false")
        time.sleep(max(0, 60 - (time.monotonic() - begun)))
    finally:
        cluster.node("run", "kill", "-CONT", process)
    alive = [one for number, one in enumerate(new) if number not in (3, 4)]
    seconds = cluster.wait_phase([one["metadata"]["name"] for one in alive], {"Running", "Failed"}, 240)
    failed = [f"{one['metadata']['name']}: {cluster.said(one['metadata']['name'])}" for one in alive
              if cluster.phases([one["metadata"]["name"]]) == {one["metadata"]["name"]: "Failed"}]
    gone = cluster.wait(120, "deleted pods are gone", lambda: len(cluster.pods()) == len(stay) + len(alive))
    freed = cluster.wait(60, "only those have grants", lambda: len(cluster.grants()) == len(stay) + len(alive))
    faults += failed + cluster.wrong_limits(stay + alive) + cluster.untouched(names)
    return {"pods": len(stay + go + new), "new ones ran after": f"{seconds:.0f} s", "deleted ones gone after": f"{gone:.0f} s",
            "grants right": f"{freed:.0f} s later"}, faults


def loops(cluster):
    """Containers that crash at once, again and again, while manager and driver are killed and replaced: each start has its limits."""
    asked = {f"loop-{number}": (4 + number, 5 + number) for number in range(8)}
    cluster.create([pod(name, container(memory=memory, cores=cores, run="sh -c 'exit 1'"), restartPolicy="Always")
                    for name, (memory, cores) in asked.items()])
    kill = lambda of: cluster.node("run", "kill", "-KILL", str(cluster.program(of)))
    restarts = [lambda: kill("manager"), lambda: kill("plugin"), lambda: cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all"),
                lambda: cluster.chart("plugin.logFilter=info"), lambda: (kill("manager"), kill("plugin")), lambda: cluster.chart()]
    starts, most = {}, 0
    for restart in restarts:
        restart()
        until = time.monotonic() + 25
        while time.monotonic() < until:
            crashed_starts(cluster, asked, starts)
            try:
                most = max(most, len(cluster.grants()))
            except Fault:
                pass
            time.sleep(0.5)
    # The last restart of each has been seen: kubelet waits at most 5 minutes between two.
    times = lambda: {name: found["status"]["containerStatuses"][0]["restartCount"] for name, found in cluster.pods().items()}
    before = times()
    cluster.wait(330, "each has crashed again after the last restart", lambda: crashed_starts(cluster, asked, starts) is None and
                 all(count > before[name] for name, count in times().items()))
    cluster.wait(60, "each start has said its limits", lambda: crashed_starts(cluster, asked, starts) is None and all(starts.values()))
    faults = [] if most == len(asked) else [f"{most} grants for {len(asked)} pods"]
    faults += [f"{name}: {states(found)}" for name, found in cluster.pods().items() if states(found)[0] == "Failed"]
    faults += [f"{name} is lost" for name in asked if name not in cluster.pods()]
    for (name, start), seen in starts.items():
        memory, cores = asked[name]
        if seen != [(memory * CHUNK, cores * 10)]:
            faults.append(f"{name}, start {start}: {seen}")
    return {"pods": len(asked), "starts looked at": len(starts), "restarts": len(restarts), "grants at most": most}, faults
