#!/usr/bin/env bash
# Packages programs that were built: what apt, dnf and container engines install. scripts/release.sh calls it.
#
#   scripts/package.sh PROGRAMS OUT [PROCESSOR] [deb|rpm|image]...      x86_64 or aarch64; default: this machine's, all three
#
# PROGRAMS has vcuda, vcuda-bench, vcuda-manager, vcuda-checkpoint, vcuda-kubernetes, libvcuda_shim.so and the simulator's libraries. They are packaged as they are: strip them before. The man pages come from VCUDA_PAGES, a folder of
# programs that run here (default: PROGRAMS). VCUDA_VERSION overrides the version.
#
# The same commit gives the same files. A package whose tool is missing is left out, with a line that says so, and the status is 77.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shift 2
processor=$(uname -m)
case ${1-} in x86_64 | aarch64) processor=$1 && shift ;; esac
kinds=("${@:-deb rpm image}")
read -ra kinds <<<"${kinds[*]}"
pages=$(realpath "${VCUDA_PAGES:-$programs}")
version=${VCUDA_VERSION:-$(sed -nE '/^\[workspace.package\]/,/^\[[^w]/ s/^version = "(.*)"/\1/p' Cargo.toml)}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing=0
lacks() { echo "package: $*" && missing=77; }
summary="Share an NVIDIA GPU: memory and GPU-time quotas for unmodified programs"

# What a workstation or a node without Kubernetes gets, below $1.
tree() {
    local root=$1
    mkdir -p "$root"/{usr/bin,usr/lib/{vcuda,systemd/system,sysusers.d},usr/share/man/man1,usr/share/doc/vcuda,etc/vcuda}
    mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    # vcuda, its demo and the manager find libraries and other programs beside themselves.
    cp -L "$programs"/{vcuda,vcuda-bench,vcuda-manager,vcuda-checkpoint,vcuda-kubernetes} "$root/usr/lib/vcuda/"
    cp -L "$programs"/libvcuda_{shim,simulator_cuda,simulator_nvml}.so "$root/usr/lib/vcuda/"
    ln -s ../lib/vcuda/{vcuda,vcuda-manager,vcuda-checkpoint,vcuda-kubernetes} "$root/usr/bin/"
    ln -s ../lib/vcuda/vcuda-kubernetes "$root/usr/bin/kubectl-vcuda"
    cp deploy/packages/sysusers.conf "$root/usr/lib/sysusers.d/vcuda.conf"
    cp deploy/vcuda-manager.service "$root/usr/lib/systemd/system/"
    # Containers get the library of this package, in a versioned copy that the manager makes.
    sed -e 's|^# shim_library = .*|shim_library = "/usr/lib/vcuda/libvcuda_shim.so"|' \
        -e 's|^# vcuda_program = .*|vcuda_program = "/usr/lib/vcuda/vcuda"|' deploy/manager.toml >"$root/etc/vcuda/manager.toml"
    cp -r docs/*.md docs/*.svg docs/generated README.md CHANGELOG.md SECURITY.md "$root/usr/share/doc/vcuda/"
    cp LICENSE "$root/usr/share/doc/vcuda/copyright"
    "$pages/vcuda" man --all "$root/usr/share/man/man1"
    help2man --no-info --name "the node daemon of vcuda" "$pages/vcuda-manager" -o "$root/usr/share/man/man1/vcuda-manager.1"
    help2man --no-info --name "one step of the suspension of a process" "$pages/vcuda-checkpoint" -o "$root/usr/share/man/man1/vcuda-checkpoint.1"
    help2man --no-info --name "shares of GPUs for Kubernetes pods" "$pages/vcuda-kubernetes" -o "$root/usr/share/man/man1/vcuda-kubernetes.1"
    gzip -n9 "$root"/usr/share/man/man1/*
    "$pages/vcuda" completions bash >"$root/usr/share/bash-completion/completions/vcuda"
    "$pages/vcuda" completions zsh >"$root/usr/share/zsh/site-functions/_vcuda"
    "$pages/vcuda" completions fish >"$root/usr/share/fish/vendor_completions.d/vcuda.fish"
    chmod -R u=rwX,go=rX "$root"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

deb() {
    command -v dpkg-deb >/dev/null || { lacks "no dpkg-deb: the .deb is left out" && return; }
    local root=$work/deb architecture
    case $processor in aarch64) architecture=arm64 ;; *) architecture=amd64 ;; esac
    tree "$root"
    mkdir -p "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<END
Package: vcuda
Version: $version
Architecture: $architecture
Maintainer: the vcuda project
Section: utils
Priority: optional
Depends: libc6 (>= 2.17)
Recommends: systemd | adduser
Installed-Size: $(du -sk "$root" | cut -f1)
Description: $summary
 A preloaded library refuses memory beyond a quota, meters GPU time and shows
 the quota as the whole GPU. The manager is installed, and started by
 "systemctl enable --now vcuda-manager".
END
    echo /etc/vcuda/manager.toml >"$root/DEBIAN/conffiles"
    cp deploy/packages/postinst deploy/packages/prerm deploy/packages/postrm "$root/DEBIAN/"
    chmod 755 "$root"/DEBIAN/p*
    dpkg-deb --root-owner-group -Zgzip -z6 --build "$root" "$out/vcuda_${version}_$architecture.deb" >/dev/null
}

rpm() {
    command -v rpmbuild >/dev/null || { lacks "no rpmbuild: the .rpm is left out" && return; }
    local root=$work/rpm-tree
    tree "$root"
    {
        cat <<END
Name: vcuda
Version: $version
Release: 1
Summary: $summary
License: Apache-2.0
Requires: glibc >= 2.17
AutoReqProv: no
%global __os_install_post %{nil}
%global debug_package %{nil}
%global _build_id_links none
%global source_date_epoch_from_changelog 0
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _buildhost vcuda
%global _binary_payload w6.gzdio
%description
A preloaded library refuses memory beyond a quota, meters GPU time and shows the quota as the whole GPU.
%install
cp -a "$root/." %{buildroot}
%post
$(sed '1d' deploy/packages/postinst)
%preun
[ "\$1" != 0 ] || set -- remove
$(sed '1d' deploy/packages/prerm)
%files
%dir /usr/lib/vcuda
%dir /usr/share/doc/vcuda
%config(noreplace) /etc/vcuda/manager.toml
END
        (cd "$root" && find . \( -type f -o -type l \) ! -path ./etc/vcuda/manager.toml | sed 's|^\.||' | sort)
    } >"$work/vcuda.spec"
    rpmbuild --quiet -bb --target "$processor-linux" --define "_topdir $work/rpm" --define "_rpmdir $out" \
        --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" "$work/vcuda.spec"
}

# An OCI image as a file, without a daemon: glibc of Debian 12, the programs, and nothing else (as deploy/Dockerfile).
image() {
    command -v umoci >/dev/null && command -v dpkg-deb >/dev/null || { lacks "no umoci or dpkg-deb: the image is left out" && return; }
    local architecture layout=$work/image root=$work/layer when
    when=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
    case $processor in aarch64) architecture=arm64 ;; *) architecture=amd64 ;; esac
    scripts/fetch-debian.sh "$work/base" bookworm "$architecture" libc6 libgcc-s1 ca-certificates >/dev/null ||
        { lacks "Debian's glibc for $architecture could not be fetched: the image is left out" && return; }
    rm -rf "$work/base/.apt" "$work/base/.complete"
    umoci init --layout "$layout"
    umoci new --image "$layout:$version"
    mkdir -p "$root/usr/bin" "$root/usr/lib/vcuda"
    cp -L "$programs"/{vcuda,vcuda-manager,vcuda-checkpoint,vcuda-kubernetes} "$root/usr/bin/"
    cp -L "$programs/libvcuda_shim.so" LICENSE "$root/usr/lib/vcuda/"
    chmod -R u=rwX,go=rX "$root" "$work/base"
    find "$root" "$work/base" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # Two layers, as glibc changes seldom.
    umoci insert --history.created "$when" --image "$layout:$version" "$work/base" / >/dev/null
    umoci insert --history.created "$when" --image "$layout:$version" "$root/usr/bin" /usr/bin >/dev/null
    umoci insert --history.created "$when" --image "$layout:$version" "$root/usr/lib/vcuda" /usr/lib/vcuda >/dev/null
    umoci config --history.created "$when" --image "$layout:$version" --config.cmd /usr/bin/vcuda-manager --config.env NVIDIA_VISIBLE_DEVICES=void \
        --config.user 65532:65532 \
        --config.label org.opencontainers.image.title=vcuda --config.label org.opencontainers.image.licenses=Apache-2.0 \
        --architecture "$architecture" --os linux --created "$when"
    umoci gc --layout "$layout" >/dev/null
    tar -C "$layout" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - . |
        gzip -n9 >"$out/vcuda-$version-image-$architecture.tar.gz"
}

for kind in "${kinds[@]}"; do
    case $kind in deb | rpm | image) "$kind" ;; *) echo "package: no kind $kind: deb, rpm or image" >&2 && exit 64 ;; esac
done
exit $missing
