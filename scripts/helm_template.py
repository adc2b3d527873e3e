"""What `helm template` and `helm install` say of deploy/helm/vcuda, by Helm's own library (scripts/chart-tools.sh)."""
import json, pathlib

import helm_python, yaml
from helm_python import _native

CHART = pathlib.Path(__file__).resolve().parent.parent / "deploy/helm/vcuda"
# The oldest and the newest release of Kubernetes that the chart is for.
RELEASES = ["1.29", "1.37"]
MONITORING = ["monitoring.coreos.com/v1"]
# What the chart does not know by itself.
IMAGE = {"repository": "images.example/vcuda"}


def documents(text):
    return [thing for thing in yaml.safe_load_all(text) if thing]


def render(chart, values, kube_version=RELEASES[1], api_versions=MONITORING):
    """As `helm template --kube-version ... --api-versions ...`, which the library can do and its Python does not offer."""
    options = {"name": "vcuda", "namespace": "vcuda-system", "kube_version": kube_version + ".0", "api_versions": api_versions}
    rendered = json.loads(_native.call_string("helm_render", chart._raw(), json.dumps({"image": IMAGE} | values), json.dumps(options)))
    return [thing for file, text in rendered.items() if file.endswith(".yaml") for thing in documents(text)]


def refused(chart, values, **more):
    """What helm says of them; nothing if it takes them."""
    try:
        render(chart, values, **more)
        return ""
    except helm_python.HelmError as error:
        return str(error)
