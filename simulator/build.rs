//! Link options of the simulated driver.

fn main() {
    for argument in [
        // The real driver's own references bind inside it. Without this a preloaded library would pre-empt the simulator's
        // internal calls, and tests of that library would pass wrongly.
        "-Wl,-Bsymbolic",
        // The name that programs linked with -lcuda record.
        "-Wl,-soname,libcuda.so.1",
        // Threads, thread-local destructors and fork handlers refer to the library, so it is never unloaded.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
