#!/usr/bin/env python3
"""Makes a container image, without a registry: image.py OUT.tar NAME SOURCE=PLACE... [--libraries-of FILE]... [--env NAME=VALUE]...
    [--command PROGRAM]

A program's shared libraries, and the loader, are taken from this machine, as ldd names them; those of FILE as well, which the
image does not have. Programs are without symbols for debuggers. The image has one layer and the folders that runtimes mount on.
"""
import argparse, hashlib, io, json, pathlib, subprocess, tarfile, tempfile

FOLDERS = ["dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/bin", "var"]
# Debian's folders are one.
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}


def libraries(program):
    """The files that the loader maps for the program, and itself."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    words = done.stdout.split() if done.returncode == 0 else []
    found = {pathlib.Path(word) for word in words if word.startswith("/")}
    # Before glibc 2.34 these were libraries of their own, which programs of then, and the shim, still name.
    for path in list(found):
        found |= {path.parent / name for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1") if path.name == "libc.so.6"}
    return {path for path in found if path.exists()}


def without_symbols(path):
    if ".so" in path.name:
        return path.read_bytes()
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(["strip", "-g", "-o", out.name, path], capture_output=True)
        return pathlib.Path(out.name).read_bytes() if done.returncode == 0 else path.read_bytes()


def layer(files, texts):
    """The image's only layer: the files by their places."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        def entry(place, **what):
            info = tarfile.TarInfo(place)
            for name, value in what.items():
                setattr(info, name, value)
            return info

        for folder in FOLDERS:
            tar.addfile(entry(folder, type=tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755))
        for place, to in LINKS.items():
            tar.addfile(entry(place, type=tarfile.SYMTYPE, linkname=to))
        contents = {place: without_symbols(source) for place, source in files.items()} | texts
        for place, content in sorted(contents.items()):
            tar.addfile(entry(place, size=len(content), mode=0o755), io.BytesIO(content))
    return held.getvalue()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("name")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--libraries-of", action="append", default=[])
    parser.add_argument("--env", action="append", default=["PATH=/usr/local/bin:/usr/bin"])
    parser.add_argument("--command")
    given = parser.parse_intermixed_args()

    files = {place: pathlib.Path(source) for source, place in (pair.split("=", 1) for pair in given.files)}
    for program in [*files.values(), *given.libraries_of]:
        for path in libraries(program):
            folder = "usr/lib64" if path.parent.name == "lib64" else "usr/lib/x86_64-linux-gnu"
            files.setdefault(f"{folder}/{path.name}", path.resolve())
    packed = layer(files, {"etc/passwd": b"root:x:0:0::/root:/usr/bin/sh\n"})
    digest = hashlib.sha256(packed).hexdigest()
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Env": given.env, "Cmd": [given.command] if given.command else None},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
    }).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [given.name], "Layers": [digest + "/layer.tar"]}]).encode()
    with tarfile.open(given.out, "w") as tar:
        for place, content in [(config_name, config), (digest + "/layer.tar", packed), ("manifest.json", manifest)]:
            info = tarfile.TarInfo(place)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


main()
