#!/usr/bin/env bash
# Builds what is installed on nodes and what goes into other people's images: for x86-64 and aarch64, for glibc 2.17 (2012) and
# later, by zig's linker.
#
#   scripts/release.sh [FOLDER]                   everything of a release (default: target/dist): for each processor an archive,
#                                                 a .deb, an .rpm and an OCI image, then the chart, a list of what they are made of
#                                                 (CycloneDX), install.sh and SHA256SUMS, signed by minisign if VCUDA_SIGN_KEY
#                                                 names a secret key
#   scripts/release.sh build PROCESSOR CRATE...   only builds; prints the folder of the result. PROCESSOR: x86_64 or aarch64
#   scripts/release.sh tools                      only installs zig and cargo-zigbuild, under target/release-tools
#
# Ends with 77 where zig, or Rust's library for the processor, cannot be had: its last line says which.
set -euo pipefail
# A build that fails in $(...) ends the script, too, instead of packing what an earlier one left.
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
glibc=2.17
target=${CARGO_TARGET_DIR:-target}
tools=$target/release-tools
without() { echo "$*" >&2; exit 77; }

tools() {
    local wanted="ziglang==0.17.1 cargo-zigbuild==0.24.0 cyclonedx-python-lib==11.12.0"
    if [ "$(cat "$tools/installed" 2>/dev/null)" != "$wanted" ]; then
        rm -rf "$tools"
        python3 -m venv "$tools" >&2 || without "python3 -m venv failed"
        # shellcheck disable=SC2086
        "$tools/bin/pip" --disable-pip-version-check -q install $wanted >&2 || without "no zig: pip could not install $wanted"
        echo "$wanted" >"$tools/installed"
    fi
    # cargo-zigbuild finds zig as a module of the first python3.
    PATH=$(realpath "$tools/bin"):$PATH
    export PATH
}

build() {
    local processor=$1 triple=$1-unknown-linux-gnu crates=() crate
    shift
    for crate in "$@"; do crates+=(-p "$crate"); done
    rustup target list --installed 2>/dev/null | grep -qx "$triple" || rustup target add "$triple" >&2 ||
        without "no Rust library for $triple: rustup target add failed"
    # Symbols are of no use without the build's folder, and are most of the size.
    CARGO_PROFILE_RELEASE_STRIP=symbols cargo zigbuild --locked --release --target "$triple.$glibc" "${crates[@]}" >&2
    echo "$target/$triple/release"
}

archive() {
    local processor=$1 out=$2 version=$3 built stage name program
    built=$(build "$processor" vcuda-shim vcuda-cli vcuda-bench vcuda-simulator vcuda-simulator-nvml vcuda-manager vcuda-kubernetes)
    scripts/check-shim.sh "$built" "$glibc"
    name=vcuda-$version-linux-$processor
    stage=$(mktemp -d)
    # `vcuda` finds the libraries and vcuda-bench beside itself; with the simulator's it can be tried without a GPU.
    mkdir -p "$stage/$name"/{bin,share/doc}
    cp "$built"/libvcuda_{shim,simulator_cuda,simulator_nvml}.so "$stage/$name/bin/"
    for program in vcuda vcuda-bench vcuda-manager vcuda-checkpoint vcuda-kubernetes; do
        cp "$built/$program" "$stage/$name/bin/"
    done
    ln -s vcuda-kubernetes "$stage/$name/bin/kubectl-vcuda"
    cp -r deploy "$stage/$name/share/"
    cp -r docs/*.md docs/generated "$stage/$name/share/doc/"
    cp LICENSE README.md CHANGELOG.md SECURITY.md "$stage/$name/"
    git rev-parse HEAD >"$stage/$name/COMMIT"
    chmod -R u=rwX,go=rX "$stage"
    # shellcheck disable=SC2094 # find leaves the file out
    (cd "$stage/$name" && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS)
    # The same commit gives the same archive: no dates, owners or order of this machine.
    tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -cf - "$name" |
        gzip -n9 >"$out/$name.tar.gz"
    rm -rf "$stage"
}

all() {
    local out=$1 version processor
    version=$(sed -nE '/^\[workspace.package\]/,/^\[[^w]/ s/^version = "(.*)"/\1/p' Cargo.toml)
    mkdir -p "$out"
    tools
    for processor in x86_64 aarch64; do archive "$processor" "$out" "$version"; done
    for processor in x86_64 aarch64; do
        VCUDA_PAGES=$target/$(uname -m)-unknown-linux-gnu/release \
            scripts/package.sh "$target/$processor-unknown-linux-gnu/release" "$out" "$processor" || [ $? = 77 ]
    done
    # As `helm package` makes it: helm push vcuda-chart-... oci://REGISTRY/...
    tar -C deploy/helm -h --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -cf - vcuda |
        gzip -n9 >"$out/vcuda-chart-$version.tgz"
    "$tools/bin/python" scripts/sbom.py "$out/vcuda-$version.cdx.json"
    cp deploy/install.sh "$out/"
    (cd "$out" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS && cat SHA256SUMS)
    [ -z "${VCUDA_SIGN_KEY:-}" ] || minisign -S -s "$VCUDA_SIGN_KEY" -m "$out/SHA256SUMS"
}

case ${1-} in
tools) tools ;;
build) shift && tools && build "$@" ;;
*) all "$(realpath -m "${1:-$target/dist}")" ;;
esac
