//! What `/proc` tells of a process: PID as seen from here, owner and command line.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use nix::unistd::{Uid, User};
use vcuda_region::process::Identity;

use crate::render::ProcessView;

/// Maximum part of a command line that is read (bytes).
const COMMAND_BYTES: u64 = 4096;

/// PID by which a process is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The PID in this process's PID namespace.
    Here(u32),
    /// Only the PID in the process's own namespace, that of a container, is known.
    InContainer(u32),
}

impl Seen {
    /// How `me` sees a process that gives its identity in its own PID namespace: its PID is translated if `/proc` shows it.
    pub(crate) fn own(me: &Identity, identity: &Identity) -> Seen {
        if identity.pid_namespace == me.pid_namespace {
            return Seen::Here(identity.pid);
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_it = |pid: &u32| me.see(*pid).is_ok_and(|seen| seen.is_same(identity));
        pids.find(is_it).map_or(Seen::InContainer(identity.pid), Seen::Here)
    }

    /// How a process is seen that a manager reports with its PID on the host, 0 if unknown, and in its own namespace.
    pub(crate) fn reported(host_pid: u32, pid: u32) -> Seen {
        if host_pid == 0 { Seen::InContainer(pid) } else { Seen::Here(host_pid) }
    }
}

/// View of a process with this name from the kernel and this memory (bytes). Owner and command line are left out if `/proc` shows
/// another process under the PID, as it does for a manager in another PID namespace.
pub(crate) fn view(seen: &Seen, name: &str, memory_used_bytes: Option<u64>) -> ProcessView {
    let (pid, is_in_container) = match *seen {
        Seen::Here(pid) => (pid, false),
        Seen::InContainer(pid) => (pid, true),
    };
    let is_same = || Identity::of(pid).is_ok_and(|process| name.is_empty() || process.command() == name);
    let is_visible = !is_in_container && is_same();
    ProcessView {
        pid,
        name: name.to_owned(),
        user: is_visible.then(|| owner(pid)).flatten(),
        command: is_visible.then(|| command_line(pid)).flatten(),
        is_in_container,
        memory_used_bytes,
    }
}

/// Name of a process from the kernel; empty if `/proc` does not show it.
pub(crate) fn name(pid: u32) -> String {
    Identity::of(pid).map_or_else(|_| String::new(), |process| process.command())
}

/// Name of the user to whom a process belongs, else the number.
fn owner(pid: u32) -> Option<String> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Some(user.map_or_else(|| uid.to_string(), |user| user.name))
}

/// Command line with spaces between the arguments; `None` for a process without one.
fn command_line(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_an_owner_and_a_command_line() {
        let me = Identity::current().unwrap();
        let seen = Seen::own(&me, &me);
        assert_eq!(seen, Seen::Here(std::process::id()));
        let view = view(&seen, &me.command(), Some(5));
        assert!(view.user.is_some() && !view.is_in_container);
        assert!(view.command.unwrap().contains("vcuda_cli"));
    }

    #[test]
    fn a_pid_that_names_another_process_here_tells_nothing() {
        let other = view(&Seen::Here(std::process::id()), "another-name", None);
        assert_eq!((other.user, other.command), (None, None));
        assert!(view(&Seen::reported(0, 7), "x", None).is_in_container);
        assert_eq!(Seen::reported(70, 7), Seen::Here(70));
    }
}
