# shellcheck shell=bash
# Before each row of the lists: c, lib (see tests/tests/programs/ordinary.rs), and the preloaded library for what follows.
ulimit -c 0
# made NAME SUFFIX FLAGS...: compiles once for all rows, without the shim, and prints where
made() {
    local name=$1 key="$*"
    shift 2
    key=$BUILT/${key//[^A-Za-z0-9_.]/_}
    if [ ! -e "$key" ]; then
        LD_PRELOAD='' gcc -w -O1 -pthread -I "$APPS" -o "$key.$$" "$SRC/$name.c" "$@" -ldl >&2 || echo "$name $*" >>"$BUILT/failed"
        mv "$key.$$" "$key"
    fi
    echo "$key"
}
c() {
    local name=$1
    shift
    ln -sf "$(made "$name" "" "$@")" "./$name"
}
lib() {
    local name=$1
    shift
    made "$name" .so -shared -fPIC "$@"
}
[ -z "$PRELOAD" ] || export LD_PRELOAD=$PRELOAD
