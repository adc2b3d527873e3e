#!/usr/bin/env bash
# A Kubernetes cluster of one node, for trying the chart and the plugin: real programs, simulated GPUs, no network.
#
#   scripts/kubernetes-node.sh FOLDER up         the cluster with the chart; one that is up stays as it is
#   scripts/kubernetes-node.sh FOLDER down       ends it and removes what it wrote: FOLDER/state
#   scripts/kubernetes-node.sh FOLDER reboot     the node loses its power and starts again; its disk stays
#   scripts/kubernetes-node.sh FOLDER chart [NAME=VALUE]...      the chart with these values, and otherwise its own, is rolled out
#   scripts/kubernetes-node.sh FOLDER host-services on|off      manager and plugin as services, started before kubelet, not by the chart
#   scripts/kubernetes-node.sh FOLDER run CMD... runs a command in the node: kubectl, ctr
#   scripts/kubernetes-node.sh FOLDER stop NAME [SIGNAL] | start NAME      one of its services: kubelet, containerd, kube-apiserver ...
#
# FOLDER/bin has kubelet, kube-apiserver, kube-scheduler, kube-controller-manager, kubectl, etcd, containerd, ctr,
# containerd-shim-runc-v2, runc and of the CNI plugins bridge, host-local, loopback. The images are made from the programs that
# cargo built (VCUDA_PROGRAMS, default target/release). All runs in namespaces of its own: nothing of the machine is changed but
# FOLDER/state and the cgroup kubepods. Needs root. Ends with 1 if something is missing, and names it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)/kubernetes
# shellcheck source=kubernetes/lib.sh
source "$here/lib.sh"
[ $# -ge 2 ] || { sed -n 's/^#   //p' "$0" >&2; exit 64; }
[ -d "$1/bin" ] || fail "$1/bin: no such folder"
folder=$(realpath "$1") command=$2
bin=$folder/bin state=$folder/state
programs=${VCUDA_PROGRAMS:-$here/../../target/release}
shift 2

check() {
    local name
    [ "$(id -u)" = 0 ] || fail "needs root"
    case $folder/ in /run/* | /dev/* | /var/lib/* | /var/log/*) fail "$folder: the node has another folder there" ;; esac
    for name in kubelet kube-apiserver kube-scheduler kube-controller-manager kubectl etcd containerd ctr containerd-shim-runc-v2 \
        runc bridge host-local loopback; do
        [ -x "$bin/$name" ] || fail "$bin/$name is missing"
    done
    for name in vcuda vcuda-manager vcuda-checkpoint vcuda-kubernetes libvcuda_shim.so libvcuda_simulator_cuda.so libvcuda_simulator_nvml.so; do
        [ -e "$programs/$name" ] || fail "$programs/$name is missing: build it, or set VCUDA_PROGRAMS"
    done
    for name in gcc strip openssl ip nsenter unshare python3; do
        command -v $name >/dev/null || fail "$name is missing on this machine"
    done
    ! find /sys/fs/cgroup -maxdepth 2 -name kubepods | grep -q . || fail "a cgroup kubepods is there: another kubelet's"
}

# Everything that is made once, before the node's first start.
prepare() {
    mkdir -p "$state"/{etc/cni,etc/manifests,services,log,disk/lib/kubelet,disk/log}
    "$here/certificates.sh" "$state/etc" "$node_address" "$api_address"
    for name in containerd.toml kubelet.yaml; do
        sed "s|@BIN@|$bin|; s|@ETC@|$state/etc|" "$here/$name" >"$state/etc/$name"
    done
    cp "$here/bridge.conflist" "$state/etc/cni/"
    "$here/images.sh" "$state" "$(realpath "$programs")"
    mkdir "$state/programs"
    cp "$programs"/{vcuda,vcuda-manager,vcuda-checkpoint,vcuda-kubernetes,libvcuda_shim.so} "$state/programs/"
    ln -s vcuda-kubernetes "$state/programs/kubectl-vcuda"
    for name in values.yaml device-plugin.toml; do
        sed "s|@STATE@|$state|" "$here/$name" >"$state/etc/$name"
    done
}

# chart [NAME=VALUE]...: the chart's objects with these values, and its pod with them
chart() {
    local python
    python=$("$here/../chart-tools.sh") || fail "Helm's library is missing: see above"
    "$python" "$here/render.py" "$state/etc/values.yaml" "$@" >"$state/etc/chart.yaml"
    inside kubectl apply -f "$state/etc/chart.yaml" >>"$state/log/chart.log"
    inside kubectl -n vcuda-system rollout status daemonset/vcuda --timeout 600s >>"$state/log/chart.log"
    until_true 300 "the chart's new pod" alone_and_registered
}

# The chart's old pod has ended, and kubelet reads the lists of the new one.
alone_and_registered() {
    local pods
    pods=$(inside kubectl -n vcuda-system get pods -l app.kubernetes.io/name=vcuda -o name) && [ "$(wc -l <<<"$pods")" = 1 ] &&
        inside kubectl get --raw "/api/v1/namespaces/vcuda-system/pods/${pods#pod/}:9437/proxy/readyz"
}

# What deploy/vcuda-manager.service and deploy/vcuda-device-plugin.service start.
host_services() {
    inside mkdir -p /run/cdi
    service vcuda-manager
    until_true 60 "the manager" inside "$state/programs/vcuda" grant list
    service vcuda-device-plugin
}

# The node's power is on: namespaces, services, images.
boot() {
    setsid unshare --mount --uts --ipc --net --pid --fork --mount-proc "$here/init.sh" "$state" >"$state/log/init.log" 2>&1 </dev/null &
    local parent=$! pid=
    for _ in $(seq 100); do
        read -r pid _ <"/proc/$parent/task/$parent/children" && break
        sleep 0.05
    done
    [ -n "$pid" ] || fail "no namespaces: $(tail -n 1 "$state/log/init.log")"
    echo "$pid $(begun "$pid")" >"$state/node.pid"
    until_true 60 "the node's folders and addresses" test -e "/proc/$pid/root/run/node-is-made"
    service etcd
    service containerd
    service kube-apiserver
    until_true 120 containerd inside ctr version
    for image in "$state"/images/*.tar; do
        inside ctr -n k8s.io images import "$image" >>"$state/log/import.log" 2>&1
    done
    until_true 300 "the API server" inside kubectl get --raw /readyz
    service kube-controller-manager
    service kube-scheduler
    [ ! -e "$state/host-services" ] || host_services
    service kubelet
}

ready() {
    until_true 300 "the node" kubelet_answers
    until_true 300 "the node's GPUs" gpus_offered
    echo "the node is ready"
}

# The end of the first process ends all others of the node. Their cgroups stay behind.
power_off() {
    local pid
    pid=$(node_pid) && kill -KILL "$pid"
    until_true 30 "the node's processes" sh -c "! [ -e /proc/${pid:-0} ]"
    rm -f "$state/node.pid" "$state"/services/*
    find /sys/fs/cgroup -depth -type d \( -path '*/kubepods' -o -path '*/kubepods/*' \) -exec rmdir {} +
}

case $command in
up)
    if node_pid >/dev/null; then ready; exit; fi
    check
    rm -rf "$state"
    prepare
    boot
    inside kubectl create namespace vcuda-system
    until_true 300 "the node" kubelet_answers
    chart
    ready
    ;;
reboot)
    power_off
    boot
    ready
    ;;
down)
    [ ! -d "$state" ] || { power_off; rm -rf "$state"; }
    ;;
chart) chart "$@" ;;
host-services)
    case ${1:-} in
    on)
        inside kubectl -n vcuda-system delete daemonset vcuda --cascade=foreground --timeout 120s
        touch "$state/host-services"
        host_services
        ;;
    off)
        rm -f "$state/host-services"
        stop vcuda-device-plugin TERM
        stop vcuda-manager TERM
        chart
        ;;
    *) fail "host-services: on or off" ;;
    esac
    ready
    ;;
run) inside "$@" ;;
stop) stop "$1" "${2:-TERM}" ;;
start) service "$1" ;;
*) fail "$command: up, down, reboot, chart, host-services, run, stop or start" ;;
esac
