//! Limits of a process that keep the loader from putting the shim before a program although its file allows it. The
//! loader says so on the program's standard error, and goes on without.

use std::fs;
use std::path::Path;

use super::Finding;

const LINK: &str = "loader";
/// Standard input, output and error: with no more descriptors than these the loader cannot open any library.
const STANDARD_DESCRIPTORS: u64 = 3;
/// With less address space than this no program uses a GPU: the driver alone reserves more (bytes).
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;

/// The limits that a command started here would have.
pub(super) fn findings() -> Option<Finding> {
    let why = obstacle(Path::new("/proc/self"))?;
    Some(Finding::note(
        LINK,
        format!("{why}: a program may start without the shim, and then is not limited"),
        "raise it (ulimit) for the command",
    ))
}

/// Limit of a process, given by its folder in `/proc`, that can keep the loader from loading the shim.
pub(super) fn obstacle(process: &Path) -> Option<String> {
    let limits = fs::read_to_string(process.join("limits")).ok()?;
    let files = soft(&limits, "Max open files").filter(|files| *files <= STANDARD_DESCRIPTORS);
    let bytes = soft(&limits, "Max address space").filter(|bytes| *bytes < ADDRESS_SPACE_BYTES);
    match (files, bytes) {
        (Some(files), _) => Some(format!("a limit of {files} open files")),
        (None, Some(bytes)) => Some(format!("a limit of {} MiB of address space", bytes >> 20)),
        (None, None) => None,
    }
}

/// The soft limit of this name in the text of `/proc/PID/limits` (proc(5)); nothing if there is none.
fn soft(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            3                    1048576              files     \n\
                    Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(soft(text, "Max open files"), Some(3));
        assert_eq!(soft(text, "Max address space"), None);
        let folder = tempfile::tempdir().unwrap();
        let is_obstacle = |text: &str| {
            fs::write(folder.path().join("limits"), text).unwrap();
            obstacle(folder.path())
        };
        assert_eq!(is_obstacle(text).as_deref(), Some("a limit of 3 open files"));
        assert_eq!(is_obstacle(&text.replace("   3 ", "   4 ")), None);
        let little = text
            .replace("   3 ", "   9 ")
            .replacen("unlimited", "20480000", 1);
        assert_eq!(
            is_obstacle(&little).as_deref(),
            Some("a limit of 19 MiB of address space")
        );
    }
}
