//! Prints what `apps/doors.c` reads, for a machine without Rust (`scripts/gpu-acceptance.sh`).

use std::collections::BTreeMap;
use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    let table = vcuda_tests::doors::questions(&BTreeMap::new());
    io::stdout().lock().write_all(table.as_bytes())
}
