#!/usr/bin/env bash
# Installs, uses, upgrades, takes back and removes the packages in a throw-away copy of this machine's root (an overlay in a mount
# namespace): scripts/check-packages.sh PROGRAMS. Ends with 77 where that cannot be: its last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
without() { echo "$*" >&2; exit 77; }
[ "$(id -u)" = 0 ] || without "not root"
command -v dpkg-deb >/dev/null && command -v help2man >/dev/null || without "no dpkg-deb or help2man"
work=$(mktemp -d)
cleanup() { rm -rf "$work"; }
trap cleanup EXIT
mkdir -p "$work/programs"
for file in vcuda vcuda-bench vcuda-manager vcuda-checkpoint vcuda-kubernetes libvcuda_shim.so libvcuda_simulator_cuda.so libvcuda_simulator_nvml.so; do
    strip -s -o "$work/programs/$file" "$1/$file"
done
kinds=(deb)
command -v rpm >/dev/null && command -v rpmbuild >/dev/null && kinds+=(rpm) || echo "check-packages: no rpm: only the .deb is tried"
for version in 0.1.0 0.1.1; do
    VCUDA_VERSION=$version scripts/package.sh "$work/programs" "$work/packages" "${kinds[@]}" >/dev/null
done
VCUDA_VERSION=0.1.0 scripts/package.sh "$work/programs" "$work/again" deb >/dev/null
for file in "$work"/again/*; do
    cmp "$file" "$work/packages/$(basename "$file")" || { echo "check-packages: two builds of $(basename "$file") differ" && exit 1; }
done

# The archive without root: whole, damaged, and signed by the wrong key.
mkdir -p "$work/archive/vcuda/bin"
cp "$work"/programs/* "$work/archive/vcuda/bin/"
archive=vcuda-0.1.0-linux-$(uname -m).tar.gz
tar -C "$work/archive" -cf - vcuda | gzip -n1 >"$work/packages/$archive"
cp deploy/install.sh "$work/packages/"
(cd "$work/packages" && sha256sum vcuda* >SHA256SUMS)
"$work/packages/install.sh" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/vcuda" --version >/dev/null
"$work/prefix/bin/vcuda-checkpoint" --version >/dev/null
refused() {
    local code=0
    "$work/packages/install.sh" --prefix "$work/refused" "$@" >/dev/null 2>"$work/said" || code=$?
    [ $code = 1 ] || { echo "check-packages: install.sh ended with $code, not 1: $(cat "$work/said")" && exit 1; }
}
if command -v minisign >/dev/null; then
    for key in one other; do minisign -GWf -p "$work/$key.pub" -s "$work/$key.key" >/dev/null; done
    minisign -S -s "$work/one.key" -m "$work/packages/SHA256SUMS" >/dev/null
    "$work/packages/install.sh" --key "$(tail -n 1 "$work/one.pub")" --prefix "$work/signed" >/dev/null
    refused --key "$(tail -n 1 "$work/other.pub")"
fi
cp "$work/packages/$archive" "$work/whole" && echo more >>"$work/packages/$archive"
refused
mv "$work/whole" "$work/packages/$archive"

cat >"$work/inside" <<'END'
set -euo pipefail
kind=$1
fail() { echo "check-packages: $kind: $*"; exit 1; }
install() { case $kind in deb) dpkg -i --force-confold --force-depends /packages/vcuda_"$1"_*.deb ;; rpm) rpm -U --nodeps --oldpackage /packages/vcuda-"$1"-1.*.rpm ;; esac >/dev/null; }
installed() { case $kind in deb) dpkg-query -W -f '${Version}' vcuda ;; rpm) rpm -q --qf '%{VERSION}' vcuda ;; esac; }
remove() { case $kind in deb) dpkg -r vcuda ;; rpm) rpm -e vcuda ;; esac >/dev/null; }

[ "$kind" = deb ] && /packages/install.sh >/dev/null || install 0.1.0
[ "$(installed)" = 0.1.0 ] || fail "it is not installed"
getent passwd vcuda >/dev/null || fail "no user vcuda"
vcuda-manager --check >/dev/null || fail "the installed configuration is wrong"
# The manager looks for it beside its own file. Asked about this shell, it answers that there is no driver (69).
checkpoint=$(dirname "$(readlink -f "$(command -v vcuda-manager)")")/vcuda-checkpoint
code=0
"$checkpoint" state --pid=$$ --start-ticks="$(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 20)" --cuda-library=/none 2>/dev/null || code=$?
[ $code = 69 ] || fail "$checkpoint ended with $code: suspensions do not work"
cd / # Not beside a build.
vcuda run --sim --memory 1GiB --name tried -- sh -c 'vcuda smi' | grep -q tried || fail "no tenant runs"
# How exact it is here, the suite judges.
timeout 300 vcuda demo --sim >/tmp/demo 2>&1 || true
grep -q "A node's manager grants" /tmp/demo && ! grep -q "is left out" /tmp/demo || fail "the demo lacks scenarios: $(cat /tmp/demo)"
[ "$(kubectl-vcuda --version)" != "$(vcuda-kubernetes --version)" ] || fail "no kubectl-vcuda"
for page in vcuda vcuda-run vcuda-grant-create vcuda-demo vcuda-manager vcuda-checkpoint vcuda-kubernetes; do
    zcat "/usr/share/man/man1/$page.1.gz" | grep -q '^\.SH' || fail "no page $page"
done
bash -c 'source /usr/share/bash-completion/completions/vcuda && complete -p vcuda' >/dev/null || fail "no completion"

# An upgrade and the way back keep what the operator wrote.
echo '# mine' >>/etc/vcuda/manager.toml
for version in 0.1.1 0.1.0; do
    install $version
    [ "$(installed)" = $version ] || fail "$version is not installed"
    grep -q '^# mine' /etc/vcuda/manager.toml || fail "$version has overwritten the configuration"
    vcuda --version >/dev/null || fail "$version does not run"
done

remove
[ ! -e /usr/bin/vcuda ] && [ ! -e /usr/bin/vcuda-checkpoint ] && [ ! -e /usr/lib/vcuda ] || fail "vcuda is still there"
ls /etc/vcuda/manager.toml* >/dev/null || fail "the operator's configuration is gone"
if [ "$kind" = deb ]; then
    dpkg -P vcuda >/dev/null
    [ ! -e /etc/vcuda/manager.toml ] || fail "purge leaves the configuration"
    ! getent passwd vcuda >/dev/null || fail "purge leaves the user"
fi
echo "check-packages: $kind: installed, used, upgraded, taken back, removed"
END

# Nothing of it reaches this machine: its root is only read, and what is written lies in memory.
for kind in "${kinds[@]}"; do
    unshare --mount --propagation private bash -euo pipefail -c '
        mount -t tmpfs none "$1" && mkdir "$1"/{upper,work,root}
        mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" || exit 77
        mkdir -p "$1/root/packages" && mount --bind "$2/packages" "$1/root/packages"
        for each in proc sys dev; do mount --rbind /$each "$1/root/$each"; done
        mount -t tmpfs none "$1/root/run" && mount -t tmpfs none "$1/root/tmp"
        cp "$2/inside" "$1/root/tmp/inside"
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1/root" bash /tmp/inside "$3"
    ' - "$(mkdir -p "$work/overlay" && echo "$work/overlay")" "$work" "$kind" || { code=$? && [ $code = 77 ] && without "no overlay can be mounted"; exit "${code:-1}"; }
done
