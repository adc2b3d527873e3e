//! Every door of I4 leads to the hook, and names that are not hooked keep their meaning.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use vcuda_tests::{Bed, Door, app, succeeded};

#[test]
fn every_route_leads_to_the_shim() {
    let bed = Bed::new();
    let program = app("doors", Door::Dlsym);
    succeeded(
        &bed.tenant(&["--memory", "1GiB"], &program)
            .arg("libvcuda_shim.so")
            .output()
            .unwrap(),
    );
}

#[test]
fn without_the_shim_the_same_doors_answer() {
    let bed = Bed::new();
    succeeded(&bed.bare(app("doors", Door::Dlsym)).output().unwrap());
}
