//! Links the unwinder in, and binds the library's own references inside it.
#![expect(clippy::disallowed_methods, reason = "cargo speaks to a build script through the environment")]

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Rust's standard library asks for -lgcc_s. An image without libgcc_s.so.1 would drop the preload silently, so
    // the name leads to the static unwinder instead: the linker reads a text file of that name as a script.
    fs::write(out.join("libgcc_s.so"), "GROUP ( libgcc_eh.a libgcc.a )\n").expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", out.display());
    for argument in [
        // Our table must name our own hooks, whatever the program or another library defines.
        "-Wl,-Bsymbolic",
        // Programs keep our addresses for ever.
        "-Wl,-z,nodelete",
        // No name is bound late: a first call may come where binding is not safe (a signal, a vfork child).
        "-Wl,-z,now",
        "-Wl,-soname,libvcuda_shim.so",
        // Line tables of the standard library too: kept for whoever debugs, small for everybody else.
        "-Wl,--compress-debug-sections=zlib",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
