//! Link options of the simulated NVML.

fn main() {
    for argument in [
        // The real library's own references bind inside it, so a preloaded library must not pre-empt them.
        "-Wl,-Bsymbolic",
        // The name that programs know it by.
        "-Wl,-soname,libnvidia-ml.so.1",
        // The library is never unloaded, as unmapping it would not close the machine's lock file.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
