//! A `usage` file in which a tenant has scribbled: the reader (the node's side) answers or says that it cannot, the
//! tenant's own processes go on, none panics or takes for ever.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use vcuda_fuzz::Container;
use vcuda_region::DeviceIndex;
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::shared::ObjectKey;
use vcuda_region::slots::Usage;

fuzz_target!(|bytes: &[u8]| {
    let container = Container::new();
    let path = container.path().join("usage");
    let mut file = fs::read(&path).expect("the file was just made");
    vcuda_fuzz::scribble(&mut file, bytes);
    fs::write(&path, &file).expect("a scratch folder can be written to");
    let me = Identity::current().expect("/proc is mounted");
    let view = ProcessView::new(me);
    if let Ok(reader) = UsageReader::open(container.path()) {
        if let Ok(processes) = reader.processes(16, &view) {
            assert!(processes.len() <= 512);
        }
        for device in DeviceIndex::all() {
            let _ = reader.bucket(device);
            let _ = reader.memory(device);
            let _ = reader.busy(device, 1_000_000, 1_005_000);
        }
    }
    let Ok(usage) = Usage::open(container.path()) else {
        return;
    };
    usage.reap_dead(&view);
    let Ok(slot) = usage.claim(&me) else { return };
    let device = DeviceIndex::new(0).expect("there is a first device");
    if let Ok(reservation) = slot.reserve(device, 4096, vcuda_fuzz::LIMIT_BYTES) {
        reservation.commit();
        slot.release(device, 4096);
    }
    let key = ObjectKey::of(b"key");
    let objects = [
        slot.share(key, device, 100),
        slot.join(key),
        slot.join_foreign(ObjectKey::of(b"other"), device, 100, vcuda_fuzz::LIMIT_BYTES).ok(),
    ];
    for object in objects.into_iter().flatten() {
        slot.part(object);
    }
    slot.set_overhead(device, 7);
    let _ = usage.used_bytes(device);
    slot.leave();
});
