//! A `limits` file with any bytes changed or cut: it is refused or read, and never more.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use vcuda_fuzz::Container;
use vcuda_region::limits::Limits;

fuzz_target!(|bytes: &[u8]| {
    let container = Container::new();
    let path = container.path().join("limits");
    let mut file = fs::read(&path).expect("the file was just made");
    vcuda_fuzz::scribble(&mut file, bytes);
    fs::write(&path, &file).expect("a scratch folder can be written to");
    let Ok(limits) = Limits::open(container.path()) else {
        return;
    };
    // A fuzzer can compute checksums, so what it says may be anything; that it says something is the point.
    for (device, uuid) in limits.devices() {
        assert!(limits.find(&uuid).is_some());
        let _ = (limits.memory_limit_bytes(device), limits.config(device), limits.pace(device));
        let _ = limits.is_metered(device);
    }
    assert!(limits.name().len() <= 128);
});
