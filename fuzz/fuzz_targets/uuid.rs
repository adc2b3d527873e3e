//! Any text as a GPU's UUID: refused, or read so that it is written the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vcuda_region::GpuUuid;

fuzz_target!(|text: &str| {
    if let Ok(uuid) = text.parse::<GpuUuid>() {
        assert_eq!(uuid.to_string().parse::<GpuUuid>().as_ref(), Ok(&uuid));
    }
});
