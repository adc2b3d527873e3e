#!/usr/bin/env bash
# Installs the unmodified CUDA clients that the tests run into target/clients (a virtual environment), and the real
# CUDA runtimes 11, 12 and 13 into target/clients/cudart. Nothing of it is committed. One line for what could not be had.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
env=target/clients
failed=0
[ -x $env/bin/python ] || python3 -m venv $env || { echo "SKIPPED clients: python3 -m venv failed"; exit 1; }
pip() { $env/bin/python -m pip --disable-pip-version-check -q "$@"; }
for package in cuda-bindings cuda-core tinygrad nvidia-ml-py numpy nvidia-cuda-nvrtc-cu12 gpustat nvitop jsonschema libucx-cu12 ${VCUDA_TEST_LARGE:+numba-cuda}; do
    $env/bin/python -m pip --disable-pip-version-check show -q "$package" 2>/dev/null || pip install "$package" ||
        { echo "could not install $package"; failed=1; }
done
mkdir -p $env/cudart
for package in nvidia-cuda-runtime-cu11 nvidia-cuda-runtime-cu12 nvidia-cuda-runtime; do
    [ -e "$env/cudart/.$package" ] && continue
    wheel=$(mktemp -d)
    if pip download --no-deps -d "$wheel" "$package"; then
        python3 - "$wheel" $env/cudart <<'PY'
import glob, os, sys, zipfile
archive = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
for name in archive.namelist():
    if os.path.basename(name).startswith("libcudart.so."):
        open(os.path.join(sys.argv[2], os.path.basename(name)), "wb").write(archive.read(name))
PY
        touch "$env/cudart/.$package"
    else
        echo "could not download $package"
        failed=1
    fi
    rm -rf "$wheel"
done
exit $failed
