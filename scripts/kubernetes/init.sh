#!/usr/bin/env bash
# The first process of the node, in namespaces of its own: init.sh STATE. Makes the node's folders, devices and addresses, and then
# only waits for processes that have lost their parent.
set -euo pipefail
state=$1
here=$(cd "$(dirname "$0")" && pwd)
source "$here/lib.sh"

# Kubelet's mounts have to reach containers that mount its folders.
mount --make-rshared /
mount --bind "$state/disk/lib" /var/lib
mount --bind "$state/disk/log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock

mkdir -p /run/dev/pts /run/dev/shm
for name in null zero full random urandom tty kmsg; do cp -a "/dev/$name" /run/dev/; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /run/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /run/dev/shm
ln -s pts/ptmx /run/dev/ptmx
ln -s /proc/self/fd /run/dev/fd
for number in 0 1 2; do ln -s /proc/self/fd/$number "/run/dev/$(cut -d' ' -f$((number + 1)) <<<'stdin stdout stderr')"; done
# What a GPU has in /dev: the simulated driver opens none of it.
for name in $(seq -f 'nvidia%g' 0 7) nvidiactl nvidia-uvm nvidia-uvm-tools; do mknod -m 666 "/run/dev/$name" c 1 3; done
mount --rbind /run/dev /dev

# The simulated GPUs, for pods of any user.
mkdir -m 755 /run/vcuda
mkdir -m 777 /run/vcuda/machine
cp "$here/machine.toml" /run/vcuda/machine/

hostname node
ip link set lo up
# The bridge of the pods has the way to both of them.
ip address add $node_address/32 dev lo
ip address add $api_address/32 dev lo
touch /run/node-is-made
exec "$state/pause" </dev/null >/dev/null 2>&1
