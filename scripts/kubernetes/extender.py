"""Scenario of the scheduler extender: no pod is sent to a node where only the sum over its GPUs fits."""
import base64, json

from admission import NAME, remove, scale
from cluster import NAMESPACE, container, pod, states

# Chunks: of a GPU of 80 GiB a filler leaves less than the large pod needs, and the small GPUs have less too.
FILLER, LARGE = 200, 150


def entry(cluster):
    """The extender in the scheduler's configuration, as the chart's values.yaml has it. No program of the node resolves names of services:
    the address is a replica's."""
    etc = cluster.folder / "state/etc"
    secret = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "secret", f"{NAME}-tls", "-o", "json"))
    (etc / "extender-ca.crt").write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    replicas = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "pods", "-l", f"app.kubernetes.io/name={NAME}", "-o", "json"))["items"]
    return {"urlPrefix": f"https://{replicas[0]['status']['podIP']}:8443", "filterVerb": "filter", "prioritizeVerb": "prioritize",
            "weight": 1, "enableHTTPS": True, "nodeCacheCapable": True, "ignorable": True, "httpTimeout": "5s",
            "managedResources": [{"name": "vcuda.io/gpu"}],
            "tlsConfig": {"caFile": str(etc / "extender-ca.crt"), "serverName": f"{NAME}.{NAMESPACE}.svc"}}


def configure(cluster, **more):
    """The scheduler starts again with this configuration."""
    etc = cluster.folder / "state/etc"
    connection = {"kubeconfig": str(etc / "admin.kubeconfig"), "qps": 200, "burst": 400}
    whole = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "clientConnection": connection,
             "leaderElection": {"leaderElect": False}} | more
    (etc / "scheduler.yaml").write_text(json.dumps(whole))
    restart_scheduler(cluster)


def restart_scheduler(cluster):
    cluster.node("stop", "kube-scheduler")
    cluster.node("start", "kube-scheduler")


def shown(cluster):
    """Faults in what `kubectl vcuda` says while the large pod waits beside the six fillers."""
    ask = lambda *words: cluster.node("run", cluster.folder / "state/programs/kubectl-vcuda", *words)
    why = ask("why", "large")
    faults = [] if "no GPU has" in why else [f"why large: {why!r}"]
    shares = json.loads(ask("ps", "--json"))["shares"]
    names = sorted(share["pod"] for share in shares)
    faults += [] if names == [f"filler-{number}" for number in range(6)] else [f"ps names {names}"]
    gpus = json.loads(ask("gpus", "--json"))["gpus"]
    return faults + ([] if len(gpus) == 8 else [f"gpus: {gpus}"])


def extender(cluster):
    """Beside the default scheduler: a pod waits while only the sum over the node's GPUs fits, and runs when one has room."""
    cluster.kubectl("label", "--overwrite", "namespace", "default", "vcuda.io/unconfined=true")
    cluster.chart("cluster.enabled=true", "cluster.extender.enabled=true")
    try:
        scale(cluster, 2)
        configure(cluster, extenders=[entry(cluster)])
        free = lambda: json.loads(cluster.kubectl("get", "node", "node", "-o", "json"))["metadata"]["annotations"].get("vcuda.io/gpus")
        cluster.wait(60, "the plugin publishes what its GPUs have left", free)
        fillers = [pod(f"filler-{number}", container(memory=FILLER, cores=10)) for number in range(6)]
        cluster.create(fillers)
        cluster.wait_phase([one["metadata"]["name"] for one in fillers], {"Running"})
        before = free()
        large = pod("large", container(memory=LARGE, cores=10))
        cluster.create([large])
        told = lambda: states(cluster.pods()["large"])[1]
        cluster.wait(60, "the large pod waits at the scheduler", lambda: "vcuda: no GPU has" in told())
        faults = [f"the large pod was sent to the node: {told()}"] if "not free" in told() else []
        faults += shown(cluster)
        cluster.kubectl("delete", "pod", "filler-0")
        waited = cluster.wait(120, "the large pod runs", lambda: cluster.phases(["large"])["large"] == "Running")
        faults += cluster.wrong_limits(fillers[1:] + [large])
        faults += [] if "not free" not in told() else [f"it was refused by the plugin: {told()}"]
    finally:
        (cluster.folder / "state/etc/scheduler.yaml").unlink(missing_ok=True)
        restart_scheduler(cluster)
        cluster.kubectl("label", "namespace", "default", "vcuda.io/unconfined-")
        remove(cluster)
    return {"fillers": len(fillers), "published": f"{len(before)} bytes", "ran after a place was free": f"{waited:.1f} s"}, faults
