//! The process at the other end of a connection, by the kernel's word, not the message's.

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vcuda_region::process::Identity;
use vcuda_region::registration::Hello;

/// A process, held so that its PID cannot become another's unnoticed.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) host_pid: u32,
    /// As it names itself, with the kernel's name of its command.
    pub(super) identity: Identity,
    pub(super) pidfd: OwnedFd,
}

impl Peer {
    /// Whether the process had not ended a moment ago: then its PID was no other's.
    pub(super) fn lives(&self) -> bool {
        matches!(has_ended(&self.pidfd), Ok(false))
    }
}

/// The process that has connected. `None` if the message speaks of another one, or if it has ended.
pub(super) fn identify(connection: &OwnedFd, hello: &Hello, me: &Identity) -> Option<Peer> {
    let credentials = nix::sys::socket::getsockopt(connection, PeerCredentials).ok()?;
    // 0: a process that cannot be seen from here.
    let pid = Pid::from_raw(credentials.pid()).filter(|_| credentials.pid() > 0)?;
    let host_pid = u32::try_from(credentials.pid()).ok()?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let seen = me.see(host_pid).ok()?;
    // The process of this pidfd lives now, so what was read of this PID was read of it, not of one that had it before
    // or has it since. That it is the one that connected, its start tells.
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
    Some(Peer {
        host_pid,
        identity,
        pidfd,
    })
}

/// Whether what a process says of itself is what can be `seen` of it. Where a namespace is hidden, the rest must do; the
/// start time can be compared within one time namespace only.
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
        // The process that had the PID before: same number, started at another time.
        let before = Hello {
            start_ticks: hello.start_ticks - 1,
            ..hello
        };
        let other = Hello {
            pid: hello.pid + 1,
            ..hello
        };
        let elsewhere = Hello {
            pid_namespace: hello.pid_namespace + 1,
            ..hello
        };
        for lie in [before, other, elsewhere] {
            assert!(identify(&ours, &lie, &me).is_none(), "{lie:?}");
        }
        drop(theirs);
    }
}
