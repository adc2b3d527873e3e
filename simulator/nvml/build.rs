//! Link options of the simulated NVML.

fn main() {
    for argument in [
        // The real library's own references bind inside it; a preloaded library must not pre-empt them.
        "-Wl,-Bsymbolic",
        // The name that programs know it by.
        "-Wl,-soname,libnvidia-ml.so.1",
        // The machine's lock file stays open for ever: unmapping this copy of the code would not close it.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
