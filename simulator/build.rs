//! Link options of the simulated driver.

fn main() {
    for argument in [
        // The real driver's own references bind inside it; without this a preloaded library would
        // pre-empt the simulator's internal calls and tests of that library would pass falsely.
        "-Wl,-Bsymbolic",
        // Programs that link with -lcuda record this name.
        "-Wl,-soname,libcuda.so.1",
        // Threads, thread-local destructors and fork handlers point into the library for ever.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
