//! Identification of the process at the other end of a connection by the kernel, not by its message.

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vcuda_region::process::Identity;
use vcuda_region::registration::Hello;

/// A process held by a pidfd, so that a reuse of its PID is noticed.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) host_pid: u32,
    /// Identity as the process gave it, with the kernel's name of its command.
    pub(super) identity: Identity,
    pub(super) pidfd: OwnedFd,
}

impl Peer {
    /// Whether the process is still alive, so that its PID is not reused.
    pub(super) fn lives(&self) -> bool {
        matches!(has_ended(&self.pidfd), Ok(false))
    }
}

/// Identifies the connected process. `None` if the message names another one, or if it has ended.
pub(super) fn identify(connection: &OwnedFd, hello: &Hello, me: &Identity) -> Option<Peer> {
    let credentials = nix::sys::socket::getsockopt(connection, PeerCredentials).ok()?;
    // PID 0 means a process that is not visible from here.
    let pid = Pid::from_raw(credentials.pid()).filter(|_| credentials.pid() > 0)?;
    let host_pid = u32::try_from(credentials.pid()).ok()?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let seen = me.see(host_pid).ok()?;
    // The process of the pidfd is alive now, so the facts read for this PID were its own. Its start time shows that it is
    // the process that connected.
    if has_ended(&pidfd).unwrap_or(true) || !agrees(hello, &seen, me) {
        return None;
    }
    let identity = Identity {
        pid: hello.pid,
        start_ticks: hello.start_ticks,
        pid_namespace: hello.pid_namespace,
        time_namespace: hello.time_namespace,
        name: seen.name,
    };
    Some(Peer { host_pid, identity, pidfd })
}

/// Whether a process's message agrees with what is `seen` of it. A hidden namespace is not compared. Start times are
/// compared only within one time namespace.
fn agrees(hello: &Hello, seen: &Identity, me: &Identity) -> bool {
    let same_clock = hello.time_namespace == me.time_namespace;
    hello.pid == seen.pid
        && (!same_clock || hello.start_ticks == seen.start_ticks)
        && (seen.pid_namespace == 0 || hello.pid_namespace == seen.pid_namespace)
        && (seen.time_namespace == 0 || hello.time_namespace == seen.time_namespace)
}

fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut question = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut question, Some(&Timespec::default()))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_must_speak_of_the_process_that_sent_it() {
        let me = Identity::current().unwrap();
        let hello = Hello::new(&me, None);
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let peer = identify(&ours, &hello, &me).unwrap();
        assert_eq!((peer.host_pid, peer.identity), (std::process::id(), me));
        // The previous process with this PID: the same number, another start time.
        let before = Hello { start_ticks: hello.start_ticks - 1, ..hello };
        let other = Hello { pid: hello.pid + 1, ..hello };
        let elsewhere = Hello { pid_namespace: hello.pid_namespace + 1, ..hello };
        for lie in [before, other, elsewhere] {
            assert!(identify(&ours, &lie, &me).is_none(), "{lie:?}");
        }
        drop(theirs);
    }
}
