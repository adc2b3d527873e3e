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
if [ -c /dev/nvidia0 ]; then cp -a /dev/nvidia* /run/dev/
else for name in $(seq -f 'nvidia%g' 0 7) nvidiactl nvidia-uvm nvidia-uvm-tools; do mknod -m 666 "/run/dev/$name" c 1 3; done; fi
mount --rbind /run/dev /dev

# The simulated GPUs, for pods of any user.
mkdir -m 755 /run/vcuda
mkdir -m 777 /run/vcuda/machine
cp "$here/machine.toml" /run/vcuda/machine/

hostname node
# The bridge of the pods has the way to both addresses. In Python, as not every machine has ip(8): netdevice(7).
python3 - $node_address $api_address <<'ADDRESSES'
import fcntl, socket, struct, sys
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, UP_RUNNING = 0x8914, 0x8916, 0x891C, 0x41
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH", b"lo", UP_RUNNING))
for number, address in enumerate(sys.argv[1:]):
    for call, value in (SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.255"):
        fcntl.ioctl(control, call, struct.pack("16sH2x4s8x", b"lo:%d" % number, socket.AF_INET, socket.inet_aton(value)))
ADDRESSES
touch /run/node-is-made
exec "$state/pause" </dev/null >/dev/null 2>&1
