"""A scenario of the kinds of pods and containers that Kubernetes knows."""
import json

from cluster import CHUNK, Fault, container, pod, states


def static_pod(cluster, faults):
    """A pod that kubelet itself reads from a file, with an annotation."""
    file = cluster.folder / "state/etc/manifests/static.yaml"
    file.write_text(json.dumps(pod("static", container(memory=16, cores=20), {"vcuda.io/memory": "1Gi"}, restartPolicy="Always")))
    try:
        cluster.wait_phase(["static-node"], {"Running"})
        seen = lambda: cluster.node("run", "kubectl", "exec", "static-node", "--", "vcuda", "smi", "--json")
        cluster.wait(30, "the static pod has its annotation's 1 GiB",
                     lambda: json.loads(seen())["gpus"][0]["memory_total_bytes"] == 1 << 30)
    except Fault as fault:
        faults.append(f"static: {fault}")
    finally:
        file.unlink()


def ephemeral(cluster, faults):
    """A container that joins a running pod has no share of the GPU, and leaves the pod's own alone."""
    words = "no share here"
    cluster.create([pod("joined", container(memory=8, cores=20))])
    try:
        cluster.wait_phase(["joined"], {"Running"})
        cluster.kubectl("debug", "joined", "--image=localhost/app:node", "--image-pull-policy=Never", "--container=guest", "--", "sh", "-c",
                        f"[ -e /dev/nvidiactl ] || [ -e /etc/vcuda/limits ] || echo {words}")
        cluster.wait(60, f"the ephemeral container says: {words}", lambda: words in cluster.text("joined", "guest"))
    except Fault as fault:
        faults.append(f"ephemeral: {fault}")
    faults += cluster.untouched(["joined"])


def kinds(cluster):
    """Non-root with a read-only root, the node's processes, several containers, init and sidecar of other sizes, static, ephemeral."""
    confined = {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True, "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
    run = "quota {}"
    made = [
        pod("confined", container(memory=8, cores=20, run=run.format(8 * CHUNK), securityContext=confined)),
        pod("processes", container(memory=8, cores=20, run=run.format(8 * CHUNK)), hostPID=True),
        pod("several", [container("one", memory=4, cores=10, run=run.format(4 * CHUNK)),
                        container("two", memory=12, cores=20, run=run.format(12 * CHUNK))]),
        pod("init", container(memory=8, cores=20, run=run.format(8 * CHUNK)),
            initContainers=[container("before", memory=8, cores=20, run=run.format(8 * CHUNK))]),
        pod("sidecar", container(memory=8, cores=20, run=run.format(8 * CHUNK)),
            initContainers=[container("before", memory=24, cores=60, run=run.format(24 * CHUNK)),
                            container("beside", memory=4, cores=10, restartPolicy="Always")]),
    ]
    names = [one["metadata"]["name"] for one in made]
    cluster.create(made)
    faults = []
    try:
        cluster.wait_phase(names, {"Succeeded", "Failed"})
    except Fault as fault:
        faults.append(str(fault))
    passed = 0
    for one in made:
        for each in one["spec"]["containers"] + [each for each in one["spec"].get("initContainers", []) if each["name"] == "before"]:
            if "passed quota" in cluster.text(one["metadata"]["name"], each["name"]):
                passed += 1
            else:
                told = states(cluster.pods()[one["metadata"]["name"]])
                faults.append(f"{one['metadata']['name']}/{each['name']}: {told} {cluster.text(one['metadata']['name'], each['name'])[-200:]}")
    faults += cluster.wrong_limits(made)
    # Kubernetes has no static pods with claims.
    if cluster.mode == "plugin":
        static_pod(cluster, faults)
    ephemeral(cluster, faults)
    return {"containers that had their quota": passed}, faults
