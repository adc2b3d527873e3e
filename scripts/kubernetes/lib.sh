# shellcheck shell=bash
# Functions of scripts/kubernetes-node.sh and its helpers, sourced with these set: here (this folder), bin (the binaries),
# state (what the node wrote). The node is a set of namespaces; the end of their first process is its loss of power.
fail() { echo "kubernetes-node: $*" >&2; exit 1; }

# begun PID: when the process began, in ticks: a number that is used again is told by it. Empty if there is none.
begun() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The first process of the node's namespaces, if it lives.
node_pid() {
    local pid start
    read -r pid start 2>/dev/null <"$state/node.pid" && [ "$(begun "$pid")" = "$start" ] && echo "$pid"
}

# inside COMMAND...: in the node's namespaces, as root, with kubectl's configuration
inside() {
    local pid
    pid=$(node_pid) || fail "the node is not up: scripts/kubernetes-node.sh FOLDER up"
    nsenter --target "$pid" --mount --uts --ipc --net --pid -- \
        env -C / PATH="$bin:/usr/sbin:/usr/bin:/sbin:/bin" KUBECONFIG="$state/etc/admin.kubeconfig" "$@"
}

# until_true SECONDS WHAT COMMAND...: waits for the command, 0.2 s between two tries
until_true() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "$what: not within the time; the logs are in $state/log"
        sleep 0.2
    done
}

# start NAME COMMAND...: a service of the node in the background; its number in the node is kept
start() {
    local name=$1
    shift
    inside bash -c 'setsid "${@:2}" >>"$1" 2>&1 </dev/null & echo $!' start "$state/log/$name.log" "$@" >"$state/services/$name"
}

# stop NAME SIGNAL: ends a service of the node and waits for its end, 60 s at most
stop() {
    local pid
    pid=$(cat "$state/services/$1" 2>/dev/null) || fail "no service $1"
    inside sh -c 'kill -"$2" "$1" 2>/dev/null; for _ in $(seq 600); do kill -0 "$1" 2>/dev/null || exit 0; sleep 0.1; done; exit 1' \
        stop "$pid" "$2" || fail "$1 does not end"
    rm -f "$state/services/$1"
}

# The node is ready, and the kubelet that runs now says so: what the API server knows of one before a reboot does not count.
kubelet_answers() {
    local is_ready told
    read -r is_ready told < <(inside kubectl get node node \
        -o 'jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}') || true
    [ "$is_ready" = True ] && [ "$(date -d "$told" +%s)" -ge "$(stat -c %Y "$state/node.pid")" ]
}
# As counts of the plugin's resource, or as devices in slices.
gpus_offered() {
    inside kubectl get node node -o 'jsonpath={.status.allocatable.vcuda\.io/gpu}' | grep -q '^[1-9]' ||
        inside kubectl get resourceslices -o 'jsonpath={.items[*].spec.devices[*].name}' | grep -q .
}

# The node's address and the API's, one of each service network: nothing outside the node's namespaces has them.
node_address=192.0.2.1
# shellcheck disable=SC2034 # kubernetes-node.sh reads it
api_address=10.96.0.1

# service NAME: starts it, by its name
service() {
    local etc=$state/etc
    case $1 in
    etcd)
        # A reboot is a SIGKILL here, which needs no fsync.
        start etcd etcd --data-dir /var/lib/etcd --unsafe-no-fsync --log-level warn
        ;;
    kube-apiserver)
        start kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --secure-port 443 \
            --advertise-address $node_address --service-cluster-ip-range 10.96.0.0/16 --allow-privileged \
            --kubelet-preferred-address-types InternalIP --enable-aggregator-routing \
            --authorization-mode Node,RBAC --token-auth-file "$etc/tokens.csv" \
            --tls-cert-file "$etc/api.crt" --tls-private-key-file "$etc/api.key" \
            --service-account-key-file "$etc/accounts.pub" --service-account-signing-key-file "$etc/accounts.key" \
            --service-account-issuer https://kubernetes.default.svc \
            --max-requests-inflight 2000 --max-mutating-requests-inflight 1000
        ;;
    kube-controller-manager)
        # Which controllers run, if a scenario says so (scale.py).
        start kube-controller-manager kube-controller-manager --controllers "$(cat "$etc/controllers" 2>/dev/null || echo '*')" --kubeconfig "$etc/admin.kubeconfig" --leader-elect=false \
            --service-account-private-key-file "$etc/accounts.key" --root-ca-file "$etc/ca.crt" \
            --kube-api-qps 200 --kube-api-burst 400
        ;;
    kube-scheduler)
        # With an extender (admission.py), its configuration says all.
        if [ -e "$etc/scheduler.yaml" ]; then
            start kube-scheduler kube-scheduler --config "$etc/scheduler.yaml"
            return
        fi
        start kube-scheduler kube-scheduler --kubeconfig "$etc/admin.kubeconfig" --leader-elect=false \
            --kube-api-qps 200 --kube-api-burst 400
        ;;
    containerd) start containerd containerd --config "$etc/containerd.toml" ;;
    kubelet)
        start kubelet kubelet --config "$etc/kubelet.yaml" --kubeconfig "$etc/kubelet.kubeconfig" --hostname-override node \
            --node-ip $node_address
        ;;
    vcuda-manager)
        start vcuda-manager env VCUDA_SIM=/run/vcuda/machine VCUDA_MANAGER_NVML="$state/driver/usr/lib64/libnvidia-ml.so.1" \
            VCUDA_MANAGER_CUDA="$state/driver/usr/lib64/libcuda.so.1" "$state/programs/vcuda-manager" --node node \
            --shim-library "$state/programs/libvcuda_shim.so" --vcuda-program "$state/programs/vcuda"
        ;;
    vcuda-device-plugin)
        start vcuda-device-plugin "$state/programs/vcuda-kubernetes" device-plugin --config "$etc/device-plugin.toml" --node node
        ;;
    *) fail "no service $1" ;;
    esac
}
