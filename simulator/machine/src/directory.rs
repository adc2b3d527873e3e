//! Location of this user's machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Directory of the machine: `VCUDA_SIM`; else `$XDG_RUNTIME_DIR/vcuda/machine`; else `/run/vcuda/machine` if that is
/// writable; else `/tmp/vcuda-UID/machine`. Nothing is made here.
pub fn machine_directory() -> PathBuf {
    choose(&environment, crate::sys::is_writable, crate::sys::user_id())
}

/// Value of an environment variable. No other function of this crate reads the environment.
fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn choose(
    environment: &dyn Fn(&str) -> Option<OsString>,
    is_writable: impl Fn(&Path) -> bool,
    user: u32,
) -> PathBuf {
    if let Some(dir) = environment("VCUDA_SIM") {
        return PathBuf::from(dir);
    }
    if let Some(runtime) = environment("XDG_RUNTIME_DIR") {
        return PathBuf::from(runtime).join("vcuda/machine");
    }
    let run = Path::new("/run/vcuda");
    if is_writable(run) || (!run.exists() && is_writable(Path::new("/run"))) {
        return run.join("machine");
    }
    PathBuf::from(format!("/tmp/vcuda-{user}/machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        let set =
            |wanted: &'static str| move |name: &str| (name == wanted).then(|| OsString::from("/somewhere"));
        assert_eq!(choose(&set("VCUDA_SIM"), |_| true, 7), Path::new("/somewhere"));
        assert_eq!(choose(&set("XDG_RUNTIME_DIR"), |_| true, 7), Path::new("/somewhere/vcuda/machine"));
        assert_eq!(choose(&|_| None, |_| true, 7), Path::new("/run/vcuda/machine"));
        assert_eq!(choose(&|_| None, |_| false, 7), Path::new("/tmp/vcuda-7/machine"));
    }
}
