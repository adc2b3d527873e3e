#!/usr/bin/env python3
"""Holds that deploy/helm/vcuda refuses values that contradict each other or the cluster, with the value and the remedy, and takes
what is near them. Run by scripts/chart.sh, by the Python of scripts/chart-tools.sh.
"""
import http.server, json, sys, threading

import helm_python
from helm_template import CHART, IMAGE, MONITORING, refused

# Values that contradict each other or the cluster: what is said names the value and the remedy.
CONTRADICTIONS = [
    ({"image": {"repository": ""}}, {}, ["image.repository is empty, on purpose", "set image.repository=REGISTRY/vcuda"]),
    ({"cluster": {"extender": {"enabled": True}}}, {}, ["cluster.enabled is false", "set cluster.enabled=true"]),
    ({"mode": "dra", "cluster": {"enabled": True, "extender": {"enabled": True}}}, {}, ["mode is dra", "set cluster.extender.enabled=false"]),
    ({"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}}, {}, ["are both true", "set one of them to false"]),
    ({"metrics": {"service": False, "serviceMonitor": {"enabled": True}}}, {}, ["metrics.service is false", "set metrics.service=true"]),
    ({"serviceAccount": {"create": False}}, {}, ["serviceAccount.name is empty", "set serviceAccount.name"]),
    ({"resources": {"gpu": "gpu"}}, {}, ['resources.gpu is "gpu"', "a domain: write for example vcuda.io/gpu"]),
    ({"resources": {"suspendableMemory": "shares/turns"}}, {}, ['"shares/turns"', "write for example vcuda.io/suspendable-memory"]),
    ({"resources": {"gpu": "nvidia.com/gpu"}}, {}, ['"nvidia.com/gpu", and nvidia.com belongs to another system', "vcuda.io/gpu"]),
    ({"resources": {"cores": "x.kubernetes.io/cores"}}, {}, ["x.kubernetes.io belongs to another system", "vcuda.io/cores"]),
    ({"resources": {"chunk": "100"}}, {}, ['resources.chunk is "100", and a size has a unit', "256MiB"]),
    ({"resources": {"chunk": 256}}, {}, ['resources.chunk is "256"']),
    ({"resources": {"chunk": ""}}, {}, ['resources.chunk is ""']),
    ({"admission": {"reserve": "512"}}, {}, ['admission.reserve is "512"']),
    ({"admission": {"reserve": 536870912}}, {}, ['admission.reserve is "536870912"']),
    ({"cluster": {"defaultMemory": "4"}}, {}, ['cluster.defaultMemory is "4"']),
    ({"cluster": {"gpuMemory": "80 GB"}}, {}, ['cluster.gpuMemory is "80 GB"', "4Gi"]),
    ({"mode": "dra"}, {"kube_version": "1.33"}, ["mode is dra and Kubernetes is v1.33.0", "1.36", "mode=plugin", "--kube-version"]),
    ({"cluster": {"enabled": True, "claims": True}}, {"kube_version": "1.33"}, ["cluster.claims is true and Kubernetes is v1.33.0"]),
    ({"policy": {"enabled": True}}, {"kube_version": "1.29"}, ["Kubernetes is v1.29.0", "1.30", "set them to false"]),
    ({"cluster": {"enabled": True, "extender": {"enabled": True}}}, {"kube_version": "1.29"}, ["ValidatingAdmissionPolicy of 1.30"]),
] + [
    ({"metrics": {name: {"enabled": True}}}, {"api_versions": []}, [f"metrics.{name}.enabled is true", "helm template --api-versions " + MONITORING[0]])
    for name in ("serviceMonitor", "podMonitor", "prometheusRule")
]
# Near them, and taken.
TAKEN = [
    ({}, {"kube_version": "1.29", "api_versions": []}),
    ({"mode": "dra"}, {"kube_version": "1.34"}),
    ({"policy": {"enabled": True}}, {"kube_version": "1.30"}),
    ({"cluster": {"claims": True}}, {"kube_version": "1.29"}),
    ({"serviceAccount": {"create": False, "name": "own"}}, {}),
    ({"admission": {"reserve": "0"}, "resources": {"chunk": "1.5G"}, "cluster": {"defaultMemory": "4Gi", "gpuMemory": ""}}, {}),
    ({"resources": {"gpu": "gpu.example.com/Share_1.a"}}, {}),
]


# Answers of an API server that has a device class of another release.
OWNER = {"meta.helm.sh/release-namespace": "gpus", "meta.helm.sh/release-name": "first"}
CLASSES = "/apis/resource.k8s.io/v1"
ANSWERS = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
        {"name": "resource.k8s.io", "versions": [{"groupVersion": "resource.k8s.io/v1", "version": "v1"}]}]},
    CLASSES: {"kind": "APIResourceList", "groupVersion": "resource.k8s.io/v1", "resources": [
        {"name": "deviceclasses", "kind": "DeviceClass", "namespaced": False, "verbs": ["get"]}]},
    CLASSES + "/deviceclasses/vcuda.io": {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
                                          "metadata": {"name": "vcuda.io", "annotations": OWNER}, "spec": {}},
}


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ANSWERS.get(self.path.split("?")[0])
        body = json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def two_releases(chart):
    """Problems of a release of mode dra in a cluster where another one made the device classes."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    named = {"clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}], "users": [{"name": "a", "user": {}}],
             "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}
    config = json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "a"} | named)
    said = {}
    for release, create in (("second", True), ("second", False), ("first", True)):
        with helm_python.Config(kubeconfig_content=config, namespace="gpus", storage_driver="memory") as cluster:
            values = {"image": IMAGE, "mode": "dra", "dra": {"deviceClasses": {"create": create}}}
            try:
                cluster.install(chart, release, values, namespace="gpus", dry_run="server")
            except helm_python.HelmError as error:  # without the API server's schemas it gets no further than the templates
                said[release, create] = str(error)
    server.shutdown()
    wrong = {case for case, words in said.items() if ("belongs to release gpus/first" in words) != (case == ("second", True))}
    is_told = "set dra.deviceClasses.create=false" in said["second", True]
    return [f"two releases of mode dra: {said}"] if wrong or not is_told or len(said) != 3 else []


def main():
    problems = []
    with helm_python.Chart.load(CHART) as chart:
        for values, more, words in CONTRADICTIONS:
            said = refused(chart, values, **more)
            missing = [word for word in words if word not in said]
            if missing or "\n" in said:
                problems.append(f"{values} {more}: not one line with {missing}: {said!r}")
        for values, more in TAKEN:
            said = refused(chart, values, **more)
            if said:
                problems.append(f"{values} {more}: refused: {said}")
        both = refused(chart, {"image": {"repository": ""}, "resources": {"chunk": "100"}})
        if "image.repository" not in both or "resources.chunk" not in both:
            problems.append(f"one alone of two faults is told: {both!r}")
        problems += two_releases(chart)
    for problem in problems:
        print("check-refusals:", problem)
    print(f"check-refusals: {len(CONTRADICTIONS) + 1} contradictions, {len(TAKEN) + 2} sets of values near them, {len(problems)} problems")
    return 1 if problems else 0


sys.exit(main())
