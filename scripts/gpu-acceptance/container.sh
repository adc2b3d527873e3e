# Stage "container": a pod's whole way on this GPU: containerd, runc and kubelet of Kubernetes, our manager and device plugin, two
# static pods of the machine's own programs (container_node.sh). The archive has them if it was packed with --node.
# shellcheck shell=bash disable=SC2154

stage_container() {
    local status name
    [ -e "$dir/node.tar.xz" ] || { row skipped container "not packed: pack --node FOLDER"; return; }
    unshare --mount true 2>/dev/null || { row skipped container "unshare --mount is not permitted"; return; }
    measure calibrate 30 "$dir/hardware/shares" calibrate 1000 wide || return
    limited 400 "$results/pods.tenant" unshare --mount bash "$dir/gpu-acceptance/container_node.sh" "$dir" \
        "$(figure calibrate.bare iterations)" "${simulated:-no}"
    status=$?
    [ $status != 77 ] || { row skipped container "$(first_words "$results/pods.tenant")"; return; }
    [ $status = 0 ] || row differs container "status $status: $(tail -n 1 "$results/pods.tenant" | cut -c1-100)"
    # shellcheck disable=SC2034 # judge reads it
    alone=$(figure calibrate.bare alone_per_second)
    expect pods.tenant web_total 4294967296 4294967296
    expect pods.tenant batch_total 8589934592 8589934592
    expect pods.tenant web_filled 3221225472 4294967296
    for name in web:30 batch:60; do
        cp "$results/pods.tenant" "$results/pod-${name%:*}.tenant"
        echo "kernels_per_second $(figure pods.tenant "${name%:*}_per_second") kernels/s" >>"$results/pod-${name%:*}.tenant"
        judge "pod-${name%:*}" "${name#*:}" 10
    done
    expect pods.tenant web_held_used 536870912 4294967296
    expect pods.tenant web_killed_used 0 0
    expect pods.tenant batch_lives 1 1
    expect pods.tenant web_resized_total 2147483648 2147483648
    expect pods.tenant grants_left 0 0
    for name in web batch; do
        [ -z "$(figure pods.tenant ${name}_torch_total)" ] || expect pods.tenant ${name}_torch_total "$(figure pods.tenant ${name}_total)" "$(figure pods.tenant ${name}_total)"
    done
}
