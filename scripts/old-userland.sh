#!/usr/bin/env bash
# Loads the shim that scripts/release.sh builds into old userlands: Debian 11 (glibc 2.31) as it is installed, by its own loader
# and /etc/ld.so.preload; a program holds to its quota there on the simulated driver. And musl, which ignores that file.
#
#   scripts/old-userland.sh [x86_64|aarch64]      aarch64 runs under qemu
#
# Needs root (chroot, mounts). Ends with 77 where something cannot be had: its last line says which.
set -euo pipefail
cd "$(dirname "$0")/.."
processor=${1:-x86_64}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
vcuda=${VCUDA:-$target/release/vcuda}
cache=$target/old-userland
work=
memory=
keeper=
without() { echo "$*" >&2; exit 77; }
failed=0
say() { echo "old-userland: $*"; }
fail() { say "FAILED $*"; failed=1; }
trap 'set +e; [ -z "$keeper" ] || { kill "$keeper"; wait "$keeper"; sleep 1; }; rm -rf "$work" "$memory"' EXIT

[ "$(id -u)" = 0 ] || without "not root: chroot and mounts are not permitted"
unshare -m true 2>/dev/null || without "no mount namespace: not permitted"
[ -x "$vcuda" ] || { echo "old-userland: no $vcuda: cargo build --release first" >&2; exit 1; }

# fetch RELEASE ARCHITECTURE PACKAGE...: unpacked into a folder of the cache
fetch() { scripts/fetch-debian.sh "$cache/$1-$2-$3" "$@" || exit; }

# Other tests, which measure time, may run beside the compiler.
CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false \
    nice -n 19 scripts/release.sh build "$processor" vcuda-shim vcuda-simulator vcuda-simulator-nvml >"$target/old-userland.built"
built=$(cat "$target/old-userland.built")
scripts/check-shim.sh "$built" 2.17
# compile TRIPLE OUT SOURCE: by zig, which has the headers of every glibc and of musl
compile() {
    "$target/release-tools/bin/python3" -m ziglang cc -target "$1" -O1 -w -DVIA_DLSYM -o "$2" "$3" ${4:+"$4"}
}

case $processor in
x86_64) architecture=amd64 emulator=() ;;
aarch64) architecture=arm64 emulator=(/qemu-aarch64-static) && fetch bookworm amd64 qemu-user-static ;;
*) echo "old-userland: x86_64 or aarch64, not $processor" >&2 && exit 64 ;;
esac
fetch bullseye "$architecture" libc6

# A tenant of 2 GiB and 50 %, whose directory is mounted into the roots.
work=$(mktemp -d)
# In memory, as a tenant's files are: a disk that others fill stops a launch for a second.
memory=$(mktemp -d /dev/shm/vcuda-old.XXXXXX)
mkdir -p "$memory/run" "$memory/machine"
chmod 700 "$memory/run"
export XDG_RUNTIME_DIR=$memory/run VCUDA_SIM=$memory/machine
unset VCUDA_MANAGER
"$vcuda" run --sim --memory 2GiB --cores 50 --name old -- sleep 600 &
keeper=$!
tenant=$memory/run/vcuda/containers/old
for _ in $(seq 100); do [ ! -e "$tenant/usage" ] || break && sleep 0.1; done
[ -e "$tenant/usage" ] || { echo "old-userland: vcuda run made no directory" >&2; exit 1; }

# root NAME: a root with nothing but what a container gets from us
root() {
    root=$work/$1
    mkdir -p "$root"/{proc,dev/shm,etc/vcuda,usr/lib/vcuda,machine,sim}
    cp "$built/libvcuda_shim.so" "$root/usr/lib/vcuda/"
    cp "$built/libvcuda_simulator_cuda.so" "$root/sim/libcuda.so.1"
    cp "$built/libvcuda_simulator_nvml.so" "$root/sim/libnvidia-ml.so.1"
    echo /usr/lib/vcuda/libvcuda_shim.so >"$root/etc/ld.so.preload"
    [ ${#emulator[@]} = 0 ] || cp "$cache/bookworm-amd64-qemu-user-static/usr/bin${emulator[0]}" "$root/"
}
# inside COMMAND...: in the root, with an environment that names nothing of ours; its words in $work/words
inside() {
    # shellcheck disable=SC2016
    timeout -k 5 60 unshare --mount --propagation private bash -c '
        root=$1 tenant=$2 machine=$3 && shift 3
        mount --bind "$tenant" "$root/etc/vcuda" && mount --bind "$machine" "$root/machine" && mount -t proc proc "$root/proc" &&
            mount -t tmpfs tmpfs "$root/dev/shm" && exec env -i VCUDA_SIM=/machine LD_LIBRARY_PATH=/sim "$(command -v chroot)" "$root" "$@"' \
        bash "$root" "$tenant" "$memory/machine" "${emulator[@]}" "$@" >"$work/words" 2>&1
}

root glibc
cp -r "$cache/bullseye-$architecture-libc6"/{lib,usr} "$root/"
[ ! -e "$cache/bullseye-$architecture-libc6/lib64" ] || cp -r "$cache/bullseye-$architecture-libc6/lib64" "$root/"
version=$(find "$root/lib" -name 'libc-2.*.so' | sed -E 's/.*libc-(.*)\.so/\1/')
[ "$version" = 2.31 ] || fail "this is not glibc 2.31 but '$version'"
# A program of the C library alone; with arguments, VARIABLE=VALUE COMMAND, it becomes the command.
cat >"$work/nothing.c" <<'C'
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    return argc < 3 ? 0 : putenv(argv[1]) || execv(argv[2], argv + 2);
}
C
compile "$processor-linux-gnu.2.17" "$root/nothing" "$work/nothing.c"
compile "$processor-linux-gnu.2.17" "$root/quota" tests/apps/quota.c -ldl
compile "$processor-linux-gnu.2.17" "$root/saturate" tests/apps/saturate.c -lpthread -ldl

# What ends every container if it is wrong: the loader accepts the library, and says nothing.
inside /nothing && [ ! -s "$work/words" ] && say "glibc $version: a program without CUDA notices nothing" ||
    fail "glibc $version: a program without CUDA: $(cat "$work/words")"
inside /quota $((2 << 30)) && say "glibc $version: $(tail -n 1 "$work/words")" || fail "glibc $version, quota: $(tail -n 3 "$work/words")"
# The limiter's own thread, by the old libpthread. The figure is not judged here: only that the cap is kept roughly.
if inside /saturate 2 1000000; then
    launched=$(awk '/launched/ {print $2}' "$work/words")
    [ "${launched:-0}" -gt 200 ] && [ "$launched" -lt 1600 ] && say "glibc $version: metered: $launched of 2000 ms at 50 %" ||
        fail "glibc $version: $launched kernels of 1 ms in 2 s at 50 %"
else
    fail "glibc $version, saturate: $(tail -n 3 "$work/words")"
fi

# A C library whose libpthread.so.0 and libdl.so.2 were taken away: loudly refused, never unlimited.
rm -f "$root"/lib/*/libdl.so.2
inside /nothing && fail "a userland without libdl.so.2 ran a program without the shim" || say "without libdl.so.2: $(head -n 1 "$work/words")"

# musl reads no /etc/ld.so.preload: the program has the whole GPU, and the manager's audit is what tells (docs/kubernetes.md).
if [ "$processor" = x86_64 ]; then
    fetch bookworm amd64 musl
    root musl
    mkdir -p "$root/lib"
    cp -rL "$cache/bookworm-amd64-musl"/lib/ld-musl-* "$root/lib/" 2>/dev/null ||
        cp "$(find "$cache/bookworm-amd64-musl" -name libc.so | head -1)" "$root/lib/ld-musl-x86_64.so.1"
    compile x86_64-linux-musl "$root/nothing" "$work/nothing.c" -dynamic
    inside /nothing && [ ! -s "$work/words" ] && say "musl: /etc/ld.so.preload is ignored, as documented" || fail "musl: $(cat "$work/words")"
    inside /nothing LD_PRELOAD=/usr/lib/vcuda/libvcuda_shim.so /nothing && fail "musl with LD_PRELOAD ran without a word" ||
        say "musl with LD_PRELOAD: $(head -n 1 "$work/words")"
fi
exit "$failed"
