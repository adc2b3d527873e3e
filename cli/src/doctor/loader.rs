//! Resource limits that keep the loader from loading the shim. The loader reports that on the program's stderr, and
//! continues without the shim.

use std::fs;
use std::path::Path;

use super::Finding;

const LINK: &str = "loader";
/// Number of standard descriptors. If no more are allowed, the loader cannot open a library.
const STANDARD_DESCRIPTORS: u64 = 3;
/// Minimum address space of a program that uses a GPU (bytes), as the driver alone reserves more.
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;

/// Finding for a command started with this process's limits.
pub(super) fn findings() -> Option<Finding> {
    let why = obstacle(Path::new("/proc/self"))?;
    Some(Finding::note(
        LINK,
        format!("{why}: a program may start without the shim, and then is not limited"),
        "raise it (ulimit) for the command",
    ))
}

/// The resource limit, if any, that can keep the loader from loading the shim. `process` is a folder in `/proc`.
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

/// The soft limit `name` in the text of `/proc/PID/limits` (proc(5)); `None` if it is unlimited or missing.
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
        let little = text.replace("   3 ", "   9 ").replacen("unlimited", "20480000", 1);
        assert_eq!(is_obstacle(&little).as_deref(), Some("a limit of 19 MiB of address space"));
    }
}
