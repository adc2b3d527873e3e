#!/usr/bin/env bash
# Two pods on a node of this machine alone: kubelet without an API server, with static pods; containerd, our manager and plugin, in
# namespaces of their own (scripts/kubernetes/init.sh). Called in a mount namespace of its own:
#   container_node.sh PACK ITERATIONS yes|no      ITERATIONS of hardware/shares' kernels; yes: the simulated GPU
# Prints lines "NAME VALUE UNIT". Ends with 77 if this machine cannot run containers: "skip: REASON".
set -euo pipefail
unset XDG_RUNTIME_DIR VCUDA_SIM VCUDA_MANAGER
dir=$1 iterations=$2 simulated=$3
here=$dir/kubernetes state=/tmp/vcuda-node bin=$state/bin
# shellcheck source=../kubernetes/lib.sh disable=SC1091
source "$here/lib.sh"
fail() { echo "FAIL: $*"; log_ends; exit 1; }
skip() { echo "skip: $*"; log_ends; exit 77; }
log_ends() { for log in "$state"/log/*.log; do echo "-- $(basename "$log")"; tail -n 20 "$log"; done; }

# All that it writes is in a file system of this namespace, which goes with it.
prepare() {
    local name
    mkdir -p $state && mount -t tmpfs tmpfs $state || skip "no tmpfs can be mounted"
    mkdir -p $state/{bin,etc/cni,etc/manifests,services,log,disk/lib/kubelet,disk/log,driver/usr/lib64}
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="data")' "$dir/node.tar.xz" $bin
    cp "$dir/pause" $state/pause
    for name in containerd.toml kubelet.yaml; do sed "s|@BIN@|$bin|; s|@ETC@|$state/etc|" "$here/$name" >"$state/etc/$name"; done
    [ "$simulated" = no ] || for name in cuda nvml; do
        cp "$dir/libvcuda_simulator_$name.so" "$state/driver/usr/lib64/$([ $name = cuda ] && echo libcuda || echo libnvidia-ml).so.1"
    done
    printf '[driver]\nroot = "%s"\n[cluster]\napi = "off"\n' "$([ "$simulated" = no ] && echo / || echo $state/driver)" >$state/etc/plugin.toml
}

# The node's first process, whose end is that of all others. It ends with this script's session, too.
boot() {
    unshare --mount --uts --ipc --net --pid --fork --kill-child --mount-proc "$here/init.sh" $state >$state/log/init.log 2>&1 </dev/null &
    local parent=$! pid=""
    for _ in $(seq 100); do read -r pid _ <"/proc/$parent/task/$parent/children" && break || sleep 0.05; done
    [ -n "$pid" ] || skip "no namespaces: $(tail -n 1 $state/log/init.log)"
    echo "$pid $(begun "$pid")" >$state/node.pid
    trap power_off EXIT
    for _ in $(seq 100); do [ -e "/proc/$pid/root/run/node-is-made" ] && return; sleep 0.1; done
    skip "the node's folders: $(tail -n 1 $state/log/init.log)"
}
power_off() {
    local pid
    pid=$(node_pid) && kill -KILL "$pid"
    for _ in $(seq 50); do [ -e "/proc/${pid:-0}" ] && sleep 0.1; done
    find /sys/fs/cgroup -depth -type d \( -path '*/kubepods' -o -path '*/kubepods/*' \) -exec rmdir {} + 2>/dev/null
}

services() {
    local driver=()
    service containerd
    for _ in $(seq 100); do inside ctr version >/dev/null 2>&1 && break; sleep 0.2; done
    inside ctr -n k8s.io images import "$dir/pause.tar" >>$state/log/import.log 2>&1 || skip "containerd: $(tail -n 1 $state/log/import.log)"
    inside mkdir -p /run/cdi
    [ "$simulated" = no ] || driver=(VCUDA_SIM=/run/vcuda/machine "VCUDA_MANAGER_NVML=$state/driver/usr/lib64/libnvidia-ml.so.1"
        "VCUDA_MANAGER_CUDA=$state/driver/usr/lib64/libcuda.so.1")
    start manager env "${driver[@]}" "$dir/vcuda-manager" --node node --shim-library "$dir/libvcuda_shim.so" --vcuda-program "$dir/vcuda"
    until_true 30 "the manager" grep -q ready $state/log/manager.log
    start plugin vcuda-kubernetes device-plugin --config $state/etc/plugin.toml --node node
    start kubelet kubelet --config $state/etc/kubelet.yaml --hostname-override node --node-ip $node_address
    # Before that, kubelet starts pods without what it does not know.
    until_true 60 "the plugin" sh -c "[ \$(grep -c 'registered with kubelet' $state/log/plugin.log) = 3 ]"
}

# This machine's programs, with room for what runtimes mount among them.
programs() {
    mkdir -p $state/{usr,upper,work}
    inside mount -t overlay -o lowerdir=/usr,upperdir=$state/upper,workdir=$state/work overlay $state/usr || skip "no overlay can be mounted"
}
# pod NAME CHUNKS CORES: of this machine's programs, which it sees where they lie
pod() {
    local volumes="" mounts="" path
    for path in /usr /opt /etc/ld.so.cache "$dir" /run/vcuda; do
        [ -e "$path" ] || [ "$path" = /run/vcuda ] || continue
        volumes+="  - {name: v${path//[^a-z]/-}x, hostPath: {path: ${path/#\/usr/$state/usr}}}"$'\n'
        mounts+="    - {name: v${path//[^a-z]/-}x, mountPath: $path}"$'\n'
    done
    cat >$state/etc/new.yaml <<POD
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/pause:node
    imagePullPolicy: Never
    command: [/usr/bin/sleep, "600"]
$([ "$simulated" = no ] || printf '    env: [{name: VCUDA_SIM, value: /run/vcuda/machine}]\n')
    resources: {limits: {vcuda.io/gpu: 1, vcuda.io/memory: $2, vcuda.io/cores: $3}}
    volumeMounts:
$mounts  volumes:
$volumes
POD
    mv $state/etc/new.yaml "$state/etc/manifests/$1.yaml"
}
# in_pod NAME COMMAND...: as kubectl exec does
in_pod() {
    local name=$1
    shift
    inside ctr -n k8s.io tasks exec --exec-id "$name-$RANDOM$RANDOM" "${container[$name]}" "$@"
}
declare -A container
running() {
    # Kubelet adds the node's name to a static pod's.
    container[$1]=$(inside ctr -n k8s.io containers list -q "labels.\"io.kubernetes.pod.name\"==$1-node,labels.\"io.cri-containerd.kind\"==container")
    [ -n "${container[$1]}" ] && in_pod "$1" /usr/bin/true
}
total='import ctypes as c; d = c.CDLL("libcuda.so.1"); n = c.c_size_t(); d.cuInit(0); d.cuDeviceTotalMem_v2(c.byref(n), 0); print(n.value)'
# used NAME: what the manager counts for the pod's containers (bytes)
used() {
    inside "$dir/vcuda" smi --json | python3 -c '
import json, sys
print(sum(t["memory_used_bytes"] for g in json.load(sys.stdin)["gpus"] for t in g["tenants"] if t["holder"] == sys.argv[1]))' "default/$1-node/main"
}

checks() {
    local name pids=() held id
    for name in web batch; do
        echo "${name}_total $(in_pod $name python3 -c "$total") bytes"
        in_pod $name python3 -c 'import torch; torch.cuda.init(); print(torch.cuda.get_device_properties(0).total_memory)' \
            >$state/torch 2>/dev/null && echo "${name}_torch_total $(cat $state/torch) bytes"
    done
    echo "web_filled $(in_pod web "$dir/hardware/fill" 64 0 | awk '$1 == "allocated" {print $2}') bytes"
    for name in web batch; do
        in_pod $name "$dir/hardware/shares" 6 "$iterations" wide >$state/$name.shares 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}" || fail "shares: $(tail -n 1 $state/*.shares)"
    for name in web batch; do awk -v name=$name '$1 == "kernels_per_second" {print name "_per_second", $2, $3}' $state/$name.shares; done
    in_pod batch "$dir/hardware/shares" 8 "$iterations" >$state/batch.shares 2>&1 &
    id=$!
    in_pod web "$dir/hardware/deaths" hold >$state/held 2>&1 &
    for _ in $(seq 100); do [ "$(used web)" = 0 ] || break; sleep 0.1; done
    echo "web_held_used $(used web) bytes"
    held=$(inside pgrep -f 'hardware/deaths hold' | tail -n 1)
    inside kill -9 "$held"
    for _ in $(seq 50); do [ "$(used web)" != 0 ] || break; sleep 0.1; done
    echo "web_killed_used $(used web) bytes"
    if wait $id; then echo "batch_lives 1 boolean"; else echo "batch_lives 0 boolean"; fi
    id=$(inside "$dir/vcuda" grant list --json | python3 -c 'import json, sys; print(next(g["id"] for g in json.load(sys.stdin)["grants"] if g["holder"] == "default/web-node/main"))')
    inside "$dir/vcuda" grant resize "$id" --memory 2GiB
    sleep 1
    echo "web_resized_total $(in_pod web python3 -c "$total") bytes"
}

prepare
boot
services
programs
pod web 16 30
pod batch 32 60
for name in web batch; do until_true 40 "pod $name" running $name; done
checks
rm $state/etc/manifests/*.yaml
grants_are_gone() { [ "$(inside "$dir/vcuda" grant list --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["grants"]))')" = 0 ]; }
until_true 120 "the end of the grants" grants_are_gone
echo "grants_left 0 grants"
