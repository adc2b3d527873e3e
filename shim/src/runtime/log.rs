//! Words to a file, if `VCUDA_LOG` asks for them. Never to stdout or stderr (I3); no descriptor is kept.

use core::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Appends one line: process, then words. What cannot be written is not said.
pub(crate) fn line(path: Option<&Path>, words: Arguments<'_>) {
    let Some(path) = path else { return };
    // One write of one line: lines of several processes do not mix. The standard library opens close-on-exec.
    let text = format!("vcuda[{}] {words}\n", std::process::id());
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(text.as_bytes());
    }
}
