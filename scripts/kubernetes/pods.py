"""Scenarios of pods' ends: containers that crash, pods deleted at random moments, a node drained, what stays behind."""
import random, time

from cluster import CHUNK, Fault, container, deployment, lines, pod, states, told

STARTS = 4


def crashes(cluster):
    """Containers that end again and again: each start has the same limits, and each pod one grant."""
    asked = {f"crash-{number}": (4 + number, 10 + number) for number in range(5)}
    cluster.create([pod(name, container(memory=memory, cores=cores, run=f"sh -c 'quota {memory * CHUNK}; exit 1'"), restartPolicy="Always")
                    for name, (memory, cores) in asked.items()])
    logs, most = {}, 0

    def look():
        nonlocal most
        for name in asked:
            for file in cluster.logs(name):
                try:
                    logs[name, file.stem] = file.read_text()
                except FileNotFoundError:
                    pass
        most = max(most, len(cluster.grants()))
        return all(len([of for of, _ in logs if of == name]) >= STARTS for name in asked)

    cluster.wait(400, f"{STARTS} starts of each", look)
    cluster.wait(60, "the last start has ended", lambda: look() and all("quota" in log.rsplit("}", 1)[-1] for log in logs.values()))
    faults = [] if most == len(asked) else [f"{most} grants for {len(asked)} pods"]
    for (name, start), log in logs.items():
        text = "\n".join(line for _, line in lines(log))
        memory, cores = asked[name]
        seen = [(total, share) for _, total, share in told(text)]
        if seen != [(memory * CHUNK, cores * 10)] or "passed quota" not in text:
            faults.append(f"{name}, start {start}: {seen}; {text[-200:]}")
    return {"pods": len(asked), "starts looked at": len(logs), "grants at most": most}, faults


def now_in(cluster, name, of="app", namespace="default"):
    """What a container that runs has now: bytes and thousandths of time of its GPUs."""
    said = cluster.kubectl("-n", namespace, "exec", name, "-c", of, "--", "vcuda", "smi", "--json")
    return [(total, share) for _, total, share in told(said)]


def crashed_starts(cluster, names, starts):
    """Adds what each start of these containers was told, by pod and number: kubelet keeps the logs of the last two."""
    for name in names:
        for file in cluster.logs(name):
            try:
                text = "\n".join(line for _, line in lines(file.read_text()))
                starts[name, file.stem] = [(total, share) for _, total, share in told(text)]
            except FileNotFoundError:
                pass
            except ValueError:
                # One that has just begun has said nothing yet.
                starts.setdefault((name, file.stem), text)


def deletions(cluster):
    """30 pods deleted at random moments of their first 20 s, some by force: those that take their place have their own limits."""
    drawn = random.Random(2)
    ways = [["--wait=false"], ["--now", "--wait=false"], ["--force", "--grace-period=0"]]

    def some(kind):
        return [pod(f"{kind}-{number}", container(memory=drawn.randint(8, 48), cores=drawn.randint(10, 20))) for number in range(30)]

    gone, others = some("gone"), some("other")
    begun = time.monotonic()
    cluster.create(gone)
    for moment, one in sorted(((drawn.uniform(0, 20), one["metadata"]["name"]) for one in gone)):
        time.sleep(max(0.0, moment - (time.monotonic() - begun)))
        cluster.kubectl("delete", "pod", one, *drawn.choice(ways))
    cluster.create(others)
    names = [one["metadata"]["name"] for one in others]
    cluster.wait(300, "30 other pods run", lambda: set(cluster.phases(names).values()) <= {"Running", "Failed"})
    failed = [f"{name}: {states(found)[1]}" for name, found in cluster.pods().items() if states(found)[0] == "Failed"]
    wrong = cluster.wrong_limits(others)
    return {"deleted": len(gone), "others": len(others), "failed": len(failed), "wrong limits": len(wrong)}, failed + wrong


def drain(cluster):
    """The node is drained under load: all grants are freed; after the uncordon the deployment is whole again."""
    kept = pod("", container(memory=4, cores=5, run="saturate 100000 20000000"))
    cluster.create([deployment("kept", 5, kept), *(pod(f"bare-{number}", container(memory=4, cores=5)) for number in range(5))])
    running = lambda: sum(states(one)[0] == "Running" for one in cluster.pods().values())
    cluster.wait(300, "10 pods run", lambda: running() == 10)
    begun = time.monotonic()
    try:
        cluster.kubectl("drain", "node", "--ignore-daemonsets", "--force", "--timeout=100s")
        drained = time.monotonic() - begun
        freed = cluster.wait(60, "no grant is left", lambda: not cluster.grants())
    finally:
        cluster.kubectl("uncordon", "node")
    cluster.wait(180, "the deployment runs again", lambda: running() == 5)
    again = [one | {"spec": kept["spec"]} for one in cluster.pods().values()]
    figures = {"drained after": f"{drained:.0f} s", "no grant": f"{freed:.0f} s later", "pods again": len(again)}
    return figures, cluster.wrong_limits(again)


def leaked(cluster):
    """Grants that stay after the last pod: none after 60 s."""
    names = [f"last-{number}" for number in range(10)]
    cluster.create([pod(name, container(memory=4, cores=5)) for name in names])
    cluster.wait_phase(names, {"Running"})
    held = len(cluster.grants())
    cluster.remove_all()
    try:
        took = cluster.wait(60, "no grant is left", lambda: not cluster.grants())
        return {"grants of 10 pods": held, "gone after": f"{took:.0f} s"}, []
    except Fault:
        left = cluster.grants()
        return {"grants of 10 pods": held, "left after 60 s": len(left)}, [f"{len(left)} grants are left: {left[:2]}"]
