//! The log file, if `VCUDA_LOG` names one. The shim never writes to stdout or stderr (I3) and keeps no descriptor.

use core::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Appends one line: process, then words. Errors are ignored.
pub(crate) fn line(path: Option<&Path>, words: Arguments<'_>) {
    let Some(path) = path else { return };
    // One write of one line: lines of several processes do not mix. The standard library opens close-on-exec.
    let text = format!("vcuda[{}] {words}\n", std::process::id());
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(text.as_bytes());
    }
}
