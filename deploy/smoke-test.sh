#!/usr/bin/env bash
# Does it work on this cluster? deploy/smoke-test.sh [NAMESPACE OF THE CHART] (default: vcuda-system)
# With kubectl and its current context: nodes offer shares; two pods share a GPU; each sees its own quota and is refused what
# is beyond; what cannot be is refused with a reason. Pods ask by counts or, in mode dra, by claims. Makes a namespace of its own, and removes it. Status 1 if anything failed.
#   SMOKE_IMAGE   an image with glibc and a shell (default: nvidia/cuda:12.6.2-base-ubuntu24.04)
set -uo pipefail
chart=${1:-vcuda-system}
image=${SMOKE_IMAGE:-nvidia/cuda:12.6.2-base-ubuntu24.04}
namespace=vcuda-smoke-$RANDOM
failed=0
passed() { echo "passed  $*"; }
fail() { echo "FAILED  $*"; failed=1; }
kube() { kubectl -n "$namespace" "$@"; }
kubectl version >/dev/null 2>&1 || { echo "smoke-test: kubectl reaches no cluster: kubectl config current-context" >&2; exit 69; }

not_ready=$(kubectl -n "$chart" get pods -l app.kubernetes.io/name=vcuda -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}')
if [ -z "$not_ready" ]; then
    fail "no pod of the chart in $chart: do nodes have one of the affinity's labels (kubectl get nodes --show-labels)?"
elif grep -v ' True$' <<<"$not_ready"; then
    fail "these pods are not ready: kubectl -n $chart logs POD -c plugin; -c manager"
else
    passed "$(wc -l <<<"$not_ready") nodes have a ready pod"
fi
shares=$(kubectl get nodes -o jsonpath='{range .items[*]}{.status.allocatable.vcuda\.io/gpu}{" "}{.status.allocatable.vcuda\.io/memory}{" "}{.status.allocatable.vcuda\.io/cores}{"\n"}{end}' |
    awk 'NF == 3 && $1 > 0 && $2 > 0 && $3 > 0' | wc -l)
slices=$(kubectl get resourceslices -o jsonpath='{range .items[?(@.spec.driver=="vcuda.io")]}{.spec.nodeName}{" "}{.spec.devices[*].name}{"\n"}{end}' 2>/dev/null |
    awk 'NF > 1 {print $1}' | sort -u | wc -l)
mode=plugin
if [ "$shares" -gt 0 ]; then
    passed "$shares nodes offer shares, memory and cores"
elif [ "$slices" -gt 0 ]; then
    mode=dra
    passed "$slices nodes have GPUs in ResourceSlices"
else
    fail "no node offers vcuda.io/gpu, memory and cores, or ResourceSlices of vcuda.io: kubectl -n $chart logs ds/vcuda -c plugin"
    exit 1
fi

kubectl create namespace "$namespace" >/dev/null || exit 1
trap 'kubectl delete namespace "$namespace" --wait=false >/dev/null' EXIT
# pod NAME GPU MEMORY CORES COMMAND: by counts, or by a claim of one GPU with as much memory and time
pod() {
    local claims="[]" resources="{limits: {vcuda.io/gpu: $2, vcuda.io/memory: $3, vcuda.io/cores: $4}}"
    if [ "$mode" = dra ]; then
        claims="[{name: gpu, resourceClaimTemplateName: $1}]" resources="{claims: [{name: gpu}]}"
        kube apply -f - >/dev/null <<TEMPLATE
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: $1}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: vcuda.io
            capacity: {requests: {memory: $((256 * $3))Mi, cores: "$4"}}
TEMPLATE
    fi
    kube apply -f - >/dev/null <<POD
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  resourceClaims: $claims
  containers:
    - name: app
      image: $image
      command: [sh, -c, "$5"]
      resources: $resources
POD
}
# reason NAME: what the pod waits for, or failed of
reason() { kube get pod "$1" -o jsonpath='{.status.reason}{.status.containerStatuses[0].state.waiting.reason}'; }
words() { kube get events --field-selector "involvedObject.name=$1" -o jsonpath='{range .items[*]}{.message}{"\n"}{end}' | tail -n 2; }

pod small 1 8 30 "sleep 600"
pod large 1 16 60 "sleep 600"
for name in small large; do
    kube wait --for=condition=Ready "pod/$name" --timeout=180s >/dev/null 2>&1 && passed "pod $name runs" ||
        fail "pod $name does not start: $(reason $name): $(words $name)"
done
# Its own limits, in a file that the container cannot write.
for name in small large; do
    kube exec "$name" -- sh -c 'test -r /etc/vcuda/limits && ! (: >>/etc/vcuda/limits) 2>/dev/null && grep -q vcuda /etc/ld.so.preload' 2>/dev/null &&
        passed "pod $name has its limits, read-only, and the library" || fail "pod $name: limits or preload are missing"
    kube exec "$name" -- sh -c 'env -i /bin/cat /proc/self/maps | grep -q libvcuda_shim' &&
        passed "pod $name: the library is loaded also without environment" || fail "pod $name: the library is not loaded (musl?)"
done
small=$(kube exec small -- sh -c 'nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits' 2>/dev/null | head -n 1)
large=$(kube exec large -- sh -c 'nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits' 2>/dev/null | head -n 1)
if [ -z "$small" ]; then
    echo "skipped nvidia-smi is not in the container"
elif [ "${large:-0}" -eq $((2 * small)) ]; then
    passed "nvidia-smi shows $small and $large MiB, one twice the other, as asked for"
else
    fail "nvidia-smi shows $small and $large MiB: not one twice the other"
fi
# Refused with a reason, and not started.
if [ "$mode" = dra ]; then
    pod beyond 1 8 101 "true"
    for _ in $(seq 30); do [[ $(words beyond) == *"cannot allocate"* ]] && break || sleep 2; done
    [[ $(words beyond) == *"cannot allocate"* ]] && passed "101 % of a GPU are refused: $(words beyond | tail -n 1)" ||
        fail "101 % of a GPU: $(kube get pod beyond -o jsonpath='{.status.phase}'): $(words beyond)"
else
    pod uneven 2 3 20 "true"
    for _ in $(seq 30); do [ -z "$(reason uneven)" ] || [ "$(reason uneven)" = ContainerCreating ] && sleep 2 || break; done
    case $(reason uneven) in
    *CreateContainerConfigError* | *UnexpectedAdmissionError*) passed "3 chunks on 2 GPUs are refused: $(words uneven | tail -n 1)" ;;
    *) [ "$(kube get pod uneven -o jsonpath='{.status.phase}')" = Pending ] && echo "skipped no node has two GPUs" ||
        fail "3 chunks on 2 GPUs: $(reason uneven)" ;;
    esac
fi
[ "$failed" = 0 ] && echo "smoke-test: all passed" || echo "smoke-test: FAILED"
exit "$failed"
