#!/usr/bin/env bash
# The systemd units under systemd itself, in namespaces of its own, with a simulated GPU: run-units.sh PROGRAMS (what cargo
# built). A unit in kubelet's place says what it finds when it starts. Nothing of the machine is changed. 77: cannot be run here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "run-units: needs root"; exit 77; }
[ -x /lib/systemd/systemd ] && [ -d /sys/fs/cgroup/systemd ] || { echo "run-units: no systemd, or no hierarchy of cgroups for it"; exit 77; }
folder=$(mktemp -d) group=/sys/fs/cgroup/systemd/vcuda-units pid=
finish() {
    [ -z "$pid" ] || { kill -KILL "$pid"; wait "$pid"; } 2>/dev/null || true
    # The namespace's other processes end after its first.
    for _ in $(seq 50); do find $group -depth -type d -exec rmdir {} + 2>/dev/null && break || sleep 0.1; done
    rm -rf "$folder"
}
trap finish EXIT
mkdir -p $group
cp "$(realpath "$1")"/{vcuda,vcuda-manager,vcuda-checkpoint,vcuda-kubernetes,libvcuda_shim.so} "$here"/../deploy/{manager,device-plugin}.toml "$folder/"
cp "$1/libvcuda_simulator_cuda.so" "$folder/libcuda.so.1"
cp "$1/libvcuda_simulator_nvml.so" "$folder/libnvidia-ml.so.1"
for name in vcuda-manager vcuda-device-plugin; do sed "s#/usr/bin/vcuda-#/run/vcuda-test/vcuda-#" "$here/../deploy/$name.service" >"$folder/$name.service"; done

# In the place of what the machine starts: the two units, kubelet's stand-in, and what all units depend on.
cat >"$folder/kubelet.service" <<'UNIT'
[Service]
ExecStart=/run/vcuda-test/kubelet.sh
StandardOutput=file:/run/said
StandardError=file:/run/said
UNIT
cat >"$folder/environment.conf" <<'UNIT'
[Service]
Environment=VCUDA_SIM=/run/machine VCUDA_MANAGER_NVML=/run/vcuda-test/libnvidia-ml.so.1 VCUDA_MANAGER_CUDA=/run/vcuda-test/libcuda.so.1
Environment=VCUDA_MANAGER_CONFIG=/run/vcuda-test/manager.toml VCUDA_PLUGIN_CONFIG=/run/vcuda-test/device-plugin.toml
Environment=VCUDA_MANAGER_SHIM=/run/vcuda-test/libvcuda_shim.so VCUDA_MANAGER_PROGRAM=/run/vcuda-test/vcuda
UNIT
cat >"$folder/kubelet.sh" <<'PROGRAM'
#!/bin/bash
# What has to hold when kubelet starts, and after a program was ended: each line said is a fault.
holds() { local what=$1; shift; "$@" >/dev/null 2>&1 || echo "not so: $what"; }
soon() { local what=$1; shift; for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "not within 30 s: $what"; }
page() { exec 3<>/dev/tcp/127.0.0.1/9437 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && cat <&3; }
knows() { local page; page=$(page) && grep -q 'kubelet does not read the list' <<<"$page" && ! grep -q manager <<<"$page"; }
of() { systemctl show --property MainPID --value "$1"; }
another() { [ "$(of "$1")" != "$2" ] && [ "$(of "$1")" != 0 ]; }
holds "the manager runs before kubelet" systemctl is-active vcuda-manager
holds "the plugin runs before kubelet" systemctl is-active vcuda-device-plugin
for name in device-plugins plugins_registry plugins/vcuda.io; do
    holds "kubelet's $name has its mode" test "$(stat -c %a:%u /var/lib/kubelet/$name)" = 750:0
done
holds "the folder of specifications is there" test "$(stat -c %a /run/cdi)" = 755
soon "the plugin has asked the manager for the node's GPUs" knows
soon "the plugin offers itself" test -S /var/lib/kubelet/plugins_registry/vcuda.io-gpu-reg.sock
for name in vcuda-device-plugin vcuda-manager; do
    before=$(of $name)
    systemctl kill --signal KILL $name
    soon "$name runs again" another $name "$before"
    soon "the plugin knows the GPUs again" knows
done
holds "the specifications stay" test -d /run/cdi
touch /run/done
PROGRAM
chmod 755 "$folder" "$folder/kubelet.sh"

cat >"$folder/node.sh" <<'PROGRAM'
mount --make-rprivate /
cp /etc/passwd /etc/group "$1/"
echo vcuda:x:990:990::/:/bin/false >>"$1/passwd"
echo vcuda:x:990: >>"$1/group"
for name in passwd group; do mount --bind "$1/$name" /etc/$name; done
mkdir "$1/run"
mount --no-mtab -t tmpfs -o mode=755 tmpfs "$1/run"
mkdir -p "$1"/run/{lock,vcuda-test}
mkdir -m 777 "$1/run/machine"
cp "$1"/* "$1/run/vcuda-test/" 2>/dev/null || true
mount --no-mtab --move "$1/run" /run
mount -o remount,ro,bind /
for place in /tmp /var/lib /var/log /etc/systemd/system /usr/lib/systemd/system /sys/fs/cgroup; do mount -t tmpfs -o mode=755 tmpfs $place; done
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
ip link set lo up
cd /usr/lib/systemd/system
for name in sysinit basic shutdown; do printf '[Unit]\nDefaultDependencies=no\n' >$name.target; done
cp /run/vcuda-test/*.service .
for name in vcuda-manager vcuda-device-plugin; do
    mkdir $name.service.d
    cp /run/vcuda-test/environment.conf $name.service.d/
done
# As `systemctl enable` of the plugin.
mkdir kubelet.service.wants
ln -s ../vcuda-device-plugin.service kubelet.service.wants/
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=kubelet.service --show-status=no
PROGRAM
sh -c 'echo $$ >"$1/cgroup.procs"; exec unshare --cgroup --mount --pid --fork --kill-child --mount-proc --uts --ipc --net bash -eu "$2/node.sh" "$2"' \
    units $group "$folder" >"$folder/log" 2>&1 </dev/null &
pid=$!
for _ in $(seq 1800); do
    inside=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) || break
    [ ! -e "/proc/${inside%% *}/root/run/done" ] || break
    sleep 0.1
done
said=$(cat "/proc/${inside%% *}/root/run/said" 2>/dev/null) || said="systemd did not start: $(tail -n 3 "$folder/log")"
[ -e "/proc/${inside%% *}/root/run/done" ] || said+=" (not to its end)"
[ -z "$said" ] || { echo "run-units: $said"; exit 1; }
echo "run-units: manager and plugin ran before kubelet, and again after SIGKILL"
