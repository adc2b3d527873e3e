#!/usr/bin/env bash
# The images of the node, and the simulated driver: images.sh STATE PROGRAMS, where PROGRAMS has what cargo built.
#   localhost/pause:node   holds a pod's namespaces
#   localhost/vcuda:node   the chart's, as deploy/Dockerfile has it
#   localhost/app:node     a shell and programs of tests/apps that use the GPU
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=$1 programs=$2 project=$here/../..
out=$state/images
mkdir -p "$out" "$state/driver/usr/lib64"

gcc -O1 -static -o "$state/pause" "$here/pause.c"
"$here/image.py" "$out/pause.tar" localhost/pause:node "$state/pause=usr/bin/pause" --command /usr/bin/pause

"$here/image.py" "$out/vcuda.tar" localhost/vcuda:node --env NVIDIA_VISIBLE_DEVICES=void \
    "$programs/vcuda=usr/bin/vcuda" "$programs/vcuda-manager=usr/bin/vcuda-manager" \
    "$programs/vcuda-checkpoint=usr/bin/vcuda-checkpoint" "$programs/vcuda-kubernetes=usr/bin/vcuda-kubernetes" \
    "$programs/libvcuda_shim.so=usr/lib/vcuda/libvcuda_shim.so"

apps=()
for app in hold poll_limit quota saturate; do
    gcc -O1 -w -DVIA_DLSYM -o "$out/$app" "$project/tests/apps/$app.c" -ldl
    apps+=("$out/$app=usr/bin/$app")
done
for name in sh cat id sleep touch; do apps+=("$(readlink -f "$(command -v $name)")=usr/bin/$name"); done
# What vcuda and the driver need, which a container gets without their libraries.
"$here/image.py" "$out/app.tar" localhost/app:node "${apps[@]}" --libraries-of "$programs/vcuda" \
    --libraries-of "$programs/libvcuda_simulator_cuda.so"

cp "$programs/libvcuda_simulator_cuda.so" "$state/driver/usr/lib64/libcuda.so.1"
cp "$programs/libvcuda_simulator_nvml.so" "$state/driver/usr/lib64/libnvidia-ml.so.1"
