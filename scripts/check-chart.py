#!/usr/bin/env python3
"""Renders deploy/helm/vcuda with Helm's own library and checks what comes out, and deploy/examples beside it.

usage: scripts/check-chart.py [FOLDER WITH vcuda-manager AND vcuda-kubernetes]

Every object is held against Kubernetes' own schemas, strictly (no unknown field), of the oldest and the newest release that
the chart is for. The configurations in it are given to the programs themselves (--check) where they are. Needs
helm-python-sdk, kubernetes-validate and PyYAML: scripts/chart.sh installs them.
"""
import base64, copy, itertools, json, pathlib, re, subprocess, sys, tempfile, tomllib

import helm_python, kubernetes_validate, yaml
from helm_template import IMAGE, RELEASES, documents, refused, render

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy/helm/vcuda"
# Objects of the Prometheus Operator and of cert-manager: their schemas are not Kubernetes'.
FOREIGN = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "Issuer"}
problems = []


def check(holds, *words):
    if not holds:
        problems.append(" ".join(map(str, words)))


def validate(where, thing):
    if thing["kind"] in FOREIGN:
        return
    # Claims as mode dra needs them are younger than the chart's oldest release.
    recent = thing["apiVersion"].startswith("resource.k8s.io/") or thing["kind"].startswith("ValidatingAdmissionPolicy")
    # And so is this field, which the chart writes for a release that has it.
    recent = recent or "resourceClaims" in thing.get("spec", {}) or "appArmorProfile" in json.dumps(thing)
    for release in RELEASES[1:] if recent else RELEASES:
        try:
            kubernetes_validate.validate(copy.deepcopy(thing), release, strict=True)
        except Exception as error:  # each of its kinds is a finding
            check(False, where, thing["kind"], "in Kubernetes", release + ":", str(error).splitlines()[0])


def pod_specs(things):
    """Labels and specification of the pods of each workload."""
    for thing in things:
        if thing["kind"] == "Pod":
            yield thing["metadata"]["labels"], thing["spec"]
        elif "template" in thing.get("spec", {}):
            yield thing["spec"]["template"]["metadata"]["labels"], thing["spec"]["template"]["spec"]


COMPONENTS = {"node", "cluster", "metrics", "policy", "test"}


def users(where, things):
    """Each pod says its user, and does not leave that to an image; the image has one without powers."""
    for found, spec in pod_specs(things):
        part = found["app.kubernetes.io/component"]
        check(spec["securityContext"].get("runAsUser") == (0 if part == "node" else 65532), where, part, "is user", spec["securityContext"])
    bases = re.findall(r"^FROM (.*)", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    check(bases and all(re.search(r"@sha256:[0-9a-f]{64}\b", base) for base in bases), "deploy/Dockerfile", "has a base without a digest:", bases)
    for file in ("deploy/Dockerfile", "scripts/package.sh"):
        check(re.search(r"^ *(USER|--config.user) 65532:65532\b", (ROOT / file).read_text(), re.M), file, "has a user with powers")


def labels(where, things):
    for thing in things:
        found = thing["metadata"].get("labels", {})
        check(found.get("app.kubernetes.io/component") in COMPONENTS and found.get("app.kubernetes.io/part-of") == "vcuda", where,
              *identity(thing), "is part of", found)
    for found, _ in pod_specs(things):
        check({"app.kubernetes.io/component", "app.kubernetes.io/part-of"} <= found.keys(), where, "pods are part of", found)


def defaults_of_objects(chart):
    """What is made where nothing is said: the tag of the release's own version; and not made where another release makes it."""
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    images = {one["image"] for _, spec in pod_specs(render(chart, {})) for one in spec["containers"]}
    check(images == {IMAGE["repository"] + ":" + version}, "the image by default:", images)
    classes = [thing for thing in render(chart, {"mode": "dra", "dra": {"deviceClasses": {"create": False}}}) if thing["kind"] == "DeviceClass"]
    check(not classes, "a second release makes device classes:", classes)
    reserve = [thing["data"]["manager.toml"] for thing in render(chart, {"admission": {"reserve": 0}}) if "manager.toml" in thing.get("data", {})]
    check('reserve = "0"' in reserve[0], "a reserve of nothing is", reserve)


def placement(chart):
    """The nodes of every workload can be said."""
    said = {"nodeSelector": {"example.com/a": "b"}, "tolerations": [{"key": "example.com/c", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                                          {"nodeSelectorTerms": [{"matchExpressions": [{"key": "example.com/d", "operator": "Exists"}]}]}}}}
    found = list(pod_specs(render(chart, said | {"cluster": {"enabled": True} | said})))
    check({one["app.kubernetes.io/component"] for one, _ in found} == {"node", "cluster", "test"}, "workloads:", found)
    for part, spec in found:
        for name, wanted in said.items():
            check(spec.get(name) == wanted, part["app.kubernetes.io/component"], "has", name, spec.get(name))


def hooks(where, things, values):
    """What helm test makes: a pod with the smallest share, that no selector takes for one of the chart's own; and what it claims."""
    claims = values.get("mode") == "dra"
    by_kind = {thing["kind"]: thing for thing in things}
    check(by_kind.keys() == {"Pod"} | ({"ResourceClaimTemplate"} if claims else set()), where, "helm test makes", by_kind.keys())
    for thing in things:
        notes = thing["metadata"]["annotations"]
        check((notes["helm.sh/hook"], notes["helm.sh/hook-delete-policy"]) == ("test", "before-hook-creation,hook-succeeded"), where, "hook:", notes)
        check(not thing["metadata"]["labels"]["app.kubernetes.io/name"] == "vcuda", where, "the test looks like a pod of the node")
    (container,) = by_kind["Pod"]["spec"]["containers"]
    check(container["command"] == ["/usr/bin/vcuda", "attached"], where, "the test runs", container["command"])
    if claims:
        check(container["resources"]["claims"] == [{"name": "gpu"}], where, "the test has no claim")
        wanted = by_kind["Pod"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        check(by_kind["ResourceClaimTemplate"]["metadata"]["name"] == wanted, where, "the test claims", wanted)
        check(int(by_kind["ResourceClaimTemplate"]["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0, where, "the pod is before its template")
    else:
        names = values.get("resources", {})
        wanted = {names.get(name, "vcuda.io/" + name) for name in ("gpu", "memory", "cores")}
        check(wanted <= container["resources"]["limits"].keys(), where, "the test asks for", container["resources"])


def configurations(where, config, programs):
    # Flags win over the file, which names what the image has.
    built = ["--shim-library", f"{programs}/libvcuda_shim.so", "--vcuda-program", f"{programs}/vcuda"]
    for name, program in [("manager.toml", ["vcuda-manager", *built]), ("device-plugin.toml", ["vcuda-kubernetes", "device-plugin"])]:
        try:
            tomllib.loads(config["data"][name])
        except tomllib.TOMLDecodeError as error:
            check(False, where, name, error)
        accepted(where, config["data"][name], programs, *program)


def accepted(where, text, programs, program, *words):
    """The program, if it is built, takes this configuration."""
    if not programs or not (programs / program).exists():
        return
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([programs / program, *words, "--config", file.name, "--check"], capture_output=True, text=True, env={})
    check(done.returncode == 0, where, "refused by", program, *words, done.stderr.strip())


def pod(where, things, access, values):
    """What the daemon set may do, and that its parts name each other."""
    by_kind = {thing["kind"]: thing for thing in reversed(things)}  # the dashboard comes last
    claims = values.get("mode") == "dra"
    daemon_set = by_kind["DaemonSet"]
    spec = daemon_set["spec"]["template"]["spec"]
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    manager, plugin = spec["containers"]
    check((manager["name"], plugin["name"]) == ("manager", "plugin"), where, "two containers, manager first")
    check(not spec.get("hostNetwork") and not spec.get("hostIPC"), where, "is in the host's network or IPC")
    check(spec["priorityClassName"] == "system-node-critical", where, "may be evicted")
    update = daemon_set["spec"]["updateStrategy"]
    check(update["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}, where, "a rollout leaves a gap:", update)
    check("--wait" in manager["command"], where, "the new manager does not wait for the old one")
    for part in (manager, plugin):
        check(part.get("readinessProbe", {}).get("httpGet", {}).get("path") == "/readyz", where, part["name"], "is never unready")
        startup = part.get("startupProbe", {})
        check(startup.get("httpGet", {}).get("path") == "/healthz" and startup["periodSeconds"] * startup["failureThreshold"] >= 300, where,
              part["name"], "is killed while a driver loads:", startup)
    drop = {"drop": ["ALL"]}
    check(plugin["securityContext"].get("capabilities") == drop and not plugin["securityContext"].get("privileged"),
          where, "the plugin has a power")
    if access == "privileged":
        check(manager["securityContext"] == {"privileged": True}, where, "privileged is not as asked for")
    else:
        acting = tomllib.loads(by_kind["ConfigMap"]["data"]["manager.toml"])
        kills = "kill" in [acting["audit"]["action"]] + [one.get("audit_action") for one in acting["namespaces"].values()]
        limits = values.get("manager", {}).get("driverLimits", False)
        powers = ["SYS_PTRACE"] + ["KILL"] * kills + ["SYS_ADMIN"] * limits
        check(limits == any(mount["mountPath"] == "/sys/fs/cgroup" for mount in manager["volumeMounts"]), where, "the node's cgroups")
        check(manager["securityContext"].get("capabilities") == {**drop, "add": powers}, where, "the manager's powers")
        for part in (manager, plugin):
            context = part["securityContext"]
            check(context.get("readOnlyRootFilesystem") and context.get("allowPrivilegeEscalation") is False
                  and not context.get("privileged"), where, part["name"], "is not confined")
    env = {entry["name"]: entry.get("value") for entry in manager["env"]}
    check((env.get("NVIDIA_VISIBLE_DEVICES") == "all") == (access == "toolkit"), where, "GPUs for the manager by", access)
    namespaces = tomllib.loads(by_kind["ConfigMap"]["data"]["manager.toml"])["namespaces"]
    suspends = any(one.get("suspendable") for one in namespaces.values())
    check(suspends == any(one.get("suspendable") for one in values.get("namespaces", {}).values()), where, "who may be suspended:", namespaces)
    libraries = {"toolkit": "compute,utility" if suspends else "utility"}.get(access)
    check(env.get("NVIDIA_DRIVER_CAPABILITIES") == libraries, where, "the manager's part of the driver:", env)
    if access == "privileged":
        check(("VCUDA_MANAGER_CUDA" in env) == suspends, where, "the manager's CUDA driver:", env)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounted = set()
    for part in (manager, plugin):
        for mount in part["volumeMounts"]:
            mounted.add(mount["name"])
            host = volumes.get(mount["name"], {}).get("hostPath", {}).get("path")
            check(mount["name"] in volumes, where, part["name"], "mounts no volume:", mount["name"])
            # Container runtimes and kubelet are told these paths: they are the node's.
            check(host in (None, mount["mountPath"]) or mount["name"].startswith("driver"), where, mount["mountPath"], "is", host)
    check(mounted == set(volumes), where, "volumes that no container mounts:", set(volumes) - mounted)
    paths = {volume["hostPath"]["path"] for volume in volumes.values() if "hostPath" in volume}
    check(not paths & {"/", "/dev", "/etc", "/proc", "/run"} or access == "privileged", where, "too much of the host:", paths)
    config = tomllib.loads(by_kind["ConfigMap"]["data"]["device-plugin.toml"])
    folders = {config["kubelet"] + "/plugins_registry", config["cdi"]}
    checkpoint = config["kubelet"] + "/device-plugins"
    check(folders <= paths and (checkpoint in paths) != claims, where, "the plugin's folders are not mounted")
    written = {mount["mountPath"] for mount in plugin["volumeMounts"] if not mount.get("readOnly")}
    check(checkpoint not in written, where, "the plugin may write to", checkpoint)
    program = ["/usr/bin/vcuda-kubernetes", "dra-driver" if claims else "device-plugin"]
    check(plugin["command"][:2] == program, where, "runs", plugin["command"])
    classes = {thing["metadata"]["name"] for thing in things if thing["kind"] == "DeviceClass"}
    check(classes == ({"vcuda.io", "vcuda.io-suspendable", "vcuda.io-whole"} if claims else set()), where, "device classes:", classes)
    overcommit(where, tomllib.loads(by_kind["ConfigMap"]["data"]["manager.toml"]), config, values)
    labelled = {"vcuda.io/mode": values.get("mode", "plugin")} if values.get("modeLabel") else {}
    check(spec.get("nodeSelector", {}) == values.get("nodeSelector", {}) | labelled, where, "is on nodes", spec.get("nodeSelector"))
    effect = values.get("dra", {}).get("unhealthyEffect", "NoSchedule")
    check(config["dra"]["unhealthy_effect"] == effect, where, "the taint of an ill GPU is", config["dra"])
    for kind in ("Service", "ServiceMonitor"):
        if kind in by_kind:
            selector = by_kind[kind]["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            found = labels if kind == "Service" else by_kind["Service"]["metadata"]["labels"]
            check(wanted.items() <= found.items(), where, kind, "selects nothing:", wanted)
    account = spec["serviceAccountName"]
    has_role = "ClusterRole" in by_kind
    check(has_role == spec["automountServiceAccountToken"], where, "a token without rights, or rights without a token")
    if has_role:
        check(by_kind["ClusterRoleBinding"]["subjects"][0]["name"] == account, where, "binds another account")
        rights = {(rule["apiGroups"][0], name): rule["verbs"] for rule in by_kind["ClusterRole"]["rules"] for name in rule["resources"]}
        wanted = {("", "pods"): ["list", "watch"]}
        if claims:
            wanted = {("resource.k8s.io", "resourceclaims"): ["get"], ("resource.k8s.io", "resourceclaims/status"): ["patch"],
                      ("resource.k8s.io", "resourceclaims/driver"): ["associated-node:patch"],
                      ("", "pods"): ["get", "list", "watch"], ("", "nodes"): ["get"],
                      ("resource.k8s.io", "resourceslices"): ["list", "watch", "create", "update", "delete"]}
            own = [rule.get("resourceNames") for rule in by_kind["ClusterRole"]["rules"] if "resourceclaims/driver" in rule["resources"]]
            check(own == [["vcuda.io"]], where, "entries of other drivers:", own)
        if config["cluster"]["publish"]:
            wanted["", "nodes"] = ["patch"]
            keeps = [thing["metadata"]["name"] for thing in things if thing["kind"] == "ValidatingAdmissionPolicy"]
            check(any(name.endswith("-nodes") for name in keeps), where, "no policy keeps a plugin to its own node:", keeps)
        if config["cluster"]["events"]:
            wanted["events.k8s.io", "events"] = ["create", "patch"]
        check(rights == wanted, where, "rights:", rights)
    if "PrometheusRule" in by_kind:
        runbooks = values["metrics"]["prometheusRule"].get("runbooks", "https://vcuda.io/docs")
        rules = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text().replace("https://vcuda.io/docs", runbooks))
        check(json.dumps(rules).count(f'"{runbooks}/generated/alerts.md#') > 10, where, "no pages at", runbooks)
        check(by_kind["PrometheusRule"]["spec"] == rules, where, "the rules are not those of deploy/alerts.yaml")
        job = {relabel["replacement"] for point in by_kind["ServiceMonitor"]["spec"]["endpoints"] for relabel in point["relabelings"]}
        named = set(re.findall(r'job="([^"]+)"', json.dumps(rules).replace('\\"', '"')))
        check(named and named <= job, where, "alerts name jobs that do not exist:", named - job)
    known = set(re.findall(r"`(vcuda_[a-z_]+)`", (ROOT / "docs/generated/metrics.md").read_text()))
    for thing in things:
        if thing["kind"] == "ConfigMap" and "config.yaml" in thing["data"]:
            for rule in yaml.safe_load(thing["data"]["config.yaml"])["rules"]:
                series = set(re.findall(r"vcuda_container_[a-z_]+", rule["seriesQuery"] + rule["metricsQuery"]))
                check(len(series) == 2 and series <= known, where, "prometheus-adapter follows series that do not exist:", series - known)
        if thing["kind"] == "ConfigMap" and "vcuda.json" in thing["data"]:
            dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
            check(json.loads(thing["data"]["vcuda.json"]) == dashboard, where, "the dashboard is another one")


def overcommit(where, manager, plugin, values):
    """Memory that suspendable pods take turns in: the manager grants what the plugin offers, and no plugin offers it without the factor."""
    factor = values.get("admission", {}).get("suspendableOvercommit", 1)
    check(manager["admission"]["suspendable_overcommit"] == factor, where, "the factor is", manager["admission"])
    check(manager["suspend"]["residence"] == values.get("suspend", {}).get("residence", "30s"), where, "the residence is", manager["suspend"])
    name = values.get("resources", {}).get("suspendableMemory", "vcuda.io/suspendable-memory") if factor > 1 else None
    check(plugin["resources"].get("suspendable_memory") == name, where, "memory for suspendable pods:", plugin["resources"])


def is_of_cluster(thing):
    return thing["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "cluster"


def cluster(where, things, values, bounds, programs):
    """What serves the whole cluster: that its parts name each other, and what it may do."""
    asked = values.get("cluster", {})
    check(bool(things) == asked.get("enabled", False), where, "has parts of the cluster:", [thing["kind"] for thing in things])
    if not things:
        return
    by_kind = {thing["kind"]: thing for thing in things}
    deployment, service = by_kind["Deployment"]["spec"], by_kind["Service"]
    spec, (container,) = deployment["template"]["spec"], deployment["template"]["spec"]["containers"]
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (service["spec"]["selector"], deployment["selector"]["matchLabels"], by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
        check(selector.items() <= labels.items(), where, "selects nothing:", selector)
    check(deployment["replicas"] == asked.get("replicas", 2), where, "replicas:", deployment["replicas"])
    context = container["securityContext"]
    check(spec["securityContext"]["runAsNonRoot"] and context["readOnlyRootFilesystem"] and context["capabilities"] == {"drop": ["ALL"]}
          and context["allowPrivilegeEscalation"] is False, where, "the webhook is not confined")
    check(not any("hostPath" in volume for volume in spec["volumes"]), where, "the webhook has folders of the node")
    config = by_kind["ConfigMap"]["data"]["cluster.toml"]
    parsed = tomllib.loads(config)
    accepted(where, config, programs, "vcuda-kubernetes", "cluster")
    check(parsed["namespaces"] == bounds, where, "the webhook's bounds are not the manager's:", parsed["namespaces"])
    check(parsed["admission"].get("tolerations", []) == asked.get("addTolerations", []), where, "tolerations:", parsed["admission"])
    tls = {volume["name"]: volume for volume in spec["volumes"]}["tls"]["secret"]["secretName"]
    made = by_kind.get("Secret", {"metadata": {"name": by_kind.get("Certificate", {}).get("spec", {}).get("secretName")}})
    check(made["metadata"]["name"] == tls, where, "mounts another certificate:", tls)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    check(parsed["certificate"] == mounts["tls"], where, "reads its certificate from", parsed["certificate"])
    claims = values.get("mode") == "dra" or asked.get("claims", False)
    webhooks(where, by_kind, service, asked, claims)
    wanted = []
    if claims:
        wanted.append((["resource.k8s.io"], ["resourceclaimtemplates"], ["create"]))
    extends = asked.get("extender", {}).get("enabled", False)
    check(parsed["extender"]["follow_nodes"] == extends, where, "the extender does not know the nodes")
    if extends:
        wanted.append(([""], ["nodes"], ["list", "watch"]))
    if wanted:
        wanted.append(([""], ["pods"], ["list", "watch"]))
    check(("ClusterRole" in by_kind) == bool(wanted) == spec["automountServiceAccountToken"], where, "rights of the webhook")
    if wanted:
        rights = [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in by_kind["ClusterRole"]["rules"]]
        check(rights == wanted, where, "rights of the webhook:", rights)


def webhooks(where, by_kind, service, asked, claims):
    host = f'{service["metadata"]["name"]}.{service["metadata"]["namespace"]}.svc'
    if "Secret" in by_kind:
        data = {name: base64.b64decode(text) for name, text in by_kind["Secret"]["data"].items()}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in data.items():
                (pathlib.Path(folder) / name).write_bytes(text)
            done = subprocess.run(["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", host, "tls.crt"], cwd=folder,
                                  capture_output=True, text=True)
        check(done.returncode == 0, where, "the certificate is not good for", host, done.stdout, done.stderr)
    else:
        check(host in by_kind["Certificate"]["spec"]["dnsNames"], where, "the certificate is not good for", host)
    for kind, path in (("MutatingWebhookConfiguration", "/mutate"), ("ValidatingWebhookConfiguration", "/validate")):
        thing, hooks = by_kind[kind], by_kind[kind]["webhooks"]
        resources = [resource for hook in hooks for rule in hook["rules"] for resource in rule["resources"]]
        check(kind.startswith("Mutating") or ("resourceclaims" in resources) == claims, where, kind, "is asked about", resources)
        for hook in hooks:
            webhook(where, kind, thing, hook, path, by_kind, service, asked)


def webhook(where, kind, thing, hook, path, by_kind, service, asked):
    client = hook["clientConfig"]
    check(client["service"] == {"name": service["metadata"]["name"], "namespace": service["metadata"]["namespace"], "port": 443, "path": path},
          where, kind, "asks", client["service"])
    if "Secret" in by_kind:
        check(client["caBundle"] == by_kind["Secret"]["data"]["ca.crt"], where, kind, "trusts another authority")
    else:
        wanted = f'{by_kind["Certificate"]["metadata"]["namespace"]}/{by_kind["Certificate"]["metadata"]["name"]}'
        check(thing["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == wanted, where, kind, "trusts no authority")
    check(hook["failurePolicy"] == asked.get("failurePolicy", "Fail"), where, kind, "failurePolicy", hook["failurePolicy"])
    names = [rule["values"] for rule in hook["namespaceSelector"]["matchExpressions"] if rule["key"] == "kubernetes.io/metadata.name"]
    check(service["metadata"]["namespace"] in names[0], where, kind, "would keep its own pods from starting")
    check(hook["matchConditions"], where, kind, "is asked about every pod")


def identity(thing):
    return thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"]


def upgrade(where, before, after):
    """`helm upgrade` from one set of values to another: the API server takes each change, and pods follow their configuration."""
    before, after = ({identity(thing): thing for thing in things} for things in (before, after))
    common = before.keys() & after.keys()
    for key in common:
        old, new = before[key], after[key]
        # What the API server never changes in an object that exists.
        for path in [("apiVersion",), ("roleRef",), ("type",), ("spec", "selector"), ("spec", "clusterIP")]:
            if path == ("spec", "selector") and key[0] not in ("DaemonSet", "Deployment"):
                continue
            was, now = old, new
            for name in path:
                was, now = (was or {}).get(name), (now or {}).get(name)
            check(was == now, where, *key, "cannot be upgraded:", ".".join(path), was, now)
    for key in common:
        workload = after[key].get("spec", {}).get("template", {}).get("spec", {})
        for volume in workload.get("volumes", []):
            config = ("ConfigMap", key[1], volume.get("configMap", {}).get("name"))
            if config in common and before[config] != after[config]:
                check(before[key]["spec"]["template"] != after[key]["spec"]["template"], where, *key, "goes on with the", config[2], "of before")


def other_values(tree):
    """Sets of values in each of which one number or one word is another."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from ({name: other} for other in other_values(value))
        elif isinstance(value, (int, float)):
            yield {name: not value if isinstance(value, bool) else value + 1}
        elif isinstance(value, str):
            yield {name: value + "1"}


def upgrades(chart, defaults, rendered_sets):
    """Every set of values after every other, and each single value after the defaults of a chart that has all its parts."""
    count = 0
    for before, after in itertools.permutations(rendered_sets, 2):
        upgrade(f"{before} to {after}", rendered_sets[before], rendered_sets[after])
        count += 1
    base = {"image": IMAGE, "cluster": {"enabled": True, "certManager": {"enabled": True}}}
    before = render(chart, base)
    for other in other_values(defaults):
        own = {"cluster": base["cluster"] | other.get("cluster", {}), "image": IMAGE | other.get("image", {})}
        try:
            after = render(chart, other | own)
        except helm_python.HelmError:  # refused before it reaches a cluster
            continue
        upgrade(f"{other}", before, after)
        count += 1
    return count


def uninstall(where, things):
    """`helm uninstall` removes what the chart made: nothing is kept, and nothing but the test is a hook, whose objects Helm leaves."""
    for thing in things:
        notes = thing["metadata"].get("annotations", {})
        kept = {"helm.sh/resource-policy", "helm.sh/hook"} & notes.keys()
        check(not kept or notes.get("helm.sh/hook") == "test", where, *identity(thing), "stays after an uninstall:", notes)
        managed = thing["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by")
        check(managed == "Helm", where, *identity(thing), "is managed by", managed)
    check(len({identity(thing) for thing in things}) == len(things), where, "names an object twice")
    check(not (CHART / "crds").exists(), "Helm never removes what is in crds/")


def keys(tree, at=""):
    for name, value in tree.items():
        yield at + name
        if isinstance(value, dict):
            yield from keys(value, at + name + ".")


def documented(schema, at=""):
    """Every property of the schema, by its path."""
    for name, value in schema.get("properties", {}).items():
        yield at + name
        yield from documented(value, at + name + ".")


def limits(tree):
    """Every `limits` in it, wherever it stands."""
    if isinstance(tree, dict):
        if isinstance(tree.get("limits"), dict):
            yield tree["limits"]
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else []:
        yield from limits(part)


def amounts(where, tree):
    """What a node can hold: whole numbers, all three, totals that divide. How many of them there were."""
    ours = [{name: amount for name, amount in asked.items() if name.startswith("vcuda.io/")} for asked in limits(tree)]
    for asked in filter(None, ours):
        if not all(isinstance(amount, int) for amount in asked.values()):
            check(False, where, "byte quantities:", asked)
            continue
        gpus = asked.get("vcuda.io/gpu", 0)
        check(gpus >= 1 and "vcuda.io/memory" in asked and "vcuda.io/cores" in asked, where, "not all three:", asked)
        check(all(amount % max(gpus, 1) == 0 for amount in asked.values()), where, "does not divide:", asked)
        check(asked.get("vcuda.io/cores", 0) <= 100 * gpus, where, "more time than there is:", asked)
    return len(list(filter(None, ours)))


def example(path):
    things = documents(path.read_text())
    for thing in things:
        validate(path.name, thing)
    claims = [thing for thing in things if thing["kind"] == "ResourceClaimTemplate"]
    for thing in claims:
        for request in thing["spec"]["spec"]["devices"]["requests"]:
            exactly = request["exactly"]
            check(exactly["deviceClassName"] == "vcuda.io" and set(exactly["capacity"]["requests"]) == {"memory", "cores"}, path.name,
                  "claims:", request)
    check(claims or sum(amounts(path.name, thing) for thing in things) > 0, path.name, "asks for nothing of ours")


def documentation(path):
    blocks = re.findall(r"^```yaml\n(.*?)^```$", path.read_text(), re.S | re.M)
    counts = [amounts(path.name, thing) for block in blocks for thing in documents(block)]
    check(blocks and sum(counts) > 0, path.name, "has no manifest of ours")


def main():
    programs = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    undocumented = set(documented(schema)) - set(keys(defaults)) - {"global"}
    check(not undocumented, "values.yaml does not show", undocumented)
    sets = {"defaults": {}}
    for path in sorted((CHART / "ci").glob("*.yaml")):
        sets[path.name] = yaml.safe_load(path.read_text())
    objects, rendered_sets = 0, {}
    with helm_python.Chart.load(CHART) as chart:
        for name, values in sets.items():
            things = render(chart, values)
            objects += len(things)
            uninstall(name, things)
            labels(name, things)
            users(name, things)
            for thing in things:
                validate(name, thing)
            tests = [thing for thing in things if "helm.sh/hook" in thing["metadata"].get("annotations", {})]
            hooks(name, tests, values)
            things = rendered_sets[name] = [thing for thing in things if thing not in tests]
            config = next(thing for thing in things if thing["kind"] == "ConfigMap" and "manager.toml" in thing["data"])
            configurations(name, config, programs)
            bounds = tomllib.loads(config["data"]["manager.toml"])["namespaces"]
            cluster(name, [thing for thing in things if is_of_cluster(thing)], values, bounds, programs)
            things = [thing for thing in things if not is_of_cluster(thing)]
            pod(name, things, "simulator" if "simulator" in values else values.get("gpuAccess", "toolkit"), values)
        changes = upgrades(chart, defaults, rendered_sets)
        defaults_of_objects(chart)
        placement(chart)
        # What is wrong is refused before anything reaches a cluster.
        for wrong in [{"gpuAcess": "cdi"}, {"gpuAccess": "magic"}, {"admission": {"placement": "best"}},
                      {"admission": {"memoryOvercommit": 0.5}}, {"suspend": {"residence": "long"}},
                      # No namespace may have suspendable pods.
                      {"admission": {"suspendableOvercommit": 1.5}}, {"namespaces": {"a": {"policy": ["burst"]}}}, {"paths": {"run": "vcuda"}},
                      {"audit": {"action": "end"}}, {"mode": "both"},
                      {"dra": {"unhealthyEffect": "Evict"}}, {"modeLabel": "dra"}, {"namespaces": {"a": {"auditAction": "end"}}},
                      {"image": {"repository": "a", "digest": "latest"}}, {"networkPolicy": {"from": []}}, {"cluster": {"failurePolicy": "Open"}}, {"cluster": {"addTolerations": [{"kye": "a"}]}}]:
            check(refused(chart, wrong), "the schema accepts", wrong)
    for template in ("rbac.yaml", "cluster.yaml"):
        role = (CHART / "templates" / template).read_text().splitlines()
        for before, line in zip(role, role[1:]):
            is_wanted = line.strip().startswith("- apiGroups") and not before.strip().startswith("#")
            check(not is_wanted, "a right without its reason:", line)
    examples = sorted((ROOT / "deploy/examples").glob("*.yaml"))
    for path in examples:
        example(path)
    for name in ("kubernetes.md", "migration.md"):
        documentation(ROOT / "docs" / name)
    for problem in problems:
        print("check-chart:", problem)
    print(f"check-chart: {objects} objects of {len(sets)} sets of values, {changes} upgrades, {len(examples)} examples, {len(problems)} problems")
    return 1 if problems or not examples else 0


sys.exit(main())
