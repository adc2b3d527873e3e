//! Handling of messages: registrations, and questions for NVML's figure of the asking process.

use std::os::fd::OwnedFd;

use rustix::net::{SendFlags, send};
use vcuda_region::registration::{Answer, Hello, ProcessMemory, Question, Status};
use vcuda_region::{GpuUuid, clock, release};

use super::super::memory;
use super::super::peer::{self, Peer};
use super::super::table::{Entered, Key, Registered};
use super::{Process, Server};

impl Server {
    /// Registers a process, or queues its question.
    pub(super) fn handle_message(&mut self, connection: OwnedFd, message: &[u8], listener: u64) {
        let hello = Hello::decode(message);
        let (oldest, newest) = release::protocols();
        let common = hello.ok().and_then(|hello| hello.choose(oldest, newest));
        let peer = match (hello, common) {
            (Err(_), _) => Err(Status::Malformed),
            (Ok(_), None) => Err(Status::Version),
            (Ok(hello), Some(_)) => peer::identify(&connection, &hello, &self.me)
                .map(|peer| (hello, peer))
                .ok_or(Status::Stranger),
        };
        if let (Ok(_), Some(gpu)) = (hello, Question::gpu_in(message)) {
            return self.ask(connection, peer.map(|(_, peer)| peer), gpu, listener);
        }
        let status = match peer {
            Ok((hello, peer)) => self.register(&hello, peer, listener),
            Err(status) => self.refuse(status, listener),
        };
        let version = common.unwrap_or(newest);
        let answer = Answer { version, status }.encode();
        // A peer that does not read the answer does not need it.
        let _ = send(&connection, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Counts a refusal, and returns it.
    fn refuse(&self, status: Status, listener: u64) -> Status {
        self.count(listener, |counts| match status {
            Status::Malformed => counts.malformed += 1,
            Status::Version => counts.version += 1,
            Status::Stranger => counts.stranger += 1,
            // Counted by the table.
            Status::Accepted | Status::Full => {}
        });
        status
    }

    /// Queues a question. A process that asks too often is told at once that nothing is known.
    fn ask(&mut self, connection: OwnedFd, peer: Result<Peer, Status>, gpu: GpuUuid, listener: u64) {
        let now_ns = clock::now_ns();
        let peer = peer.map_err(|status| self.refuse(status, listener));
        let Some(tenant) = self.listeners.get_mut(&listener) else {
            return;
        };
        match peer {
            Err(status) => memory::reply(&connection, status, ProcessMemory::Unknown),
            Ok(_) if !tenant.questions.consume(now_ns) => {
                memory::reply(&connection, Status::Accepted, ProcessMemory::Unknown);
            }
            Ok(peer) => self.asker.ask(connection, peer, gpu, now_ns, &tenant.waiting),
        }
    }

    /// Registers a process, and watches for its end.
    fn register(&mut self, hello: &Hello, peer: Peer, listener: u64) -> Status {
        let Some(tenant) = self.listeners.get(&listener).map(|one| one.tenant.clone()) else {
            return Status::Full;
        };
        let key = Key::of(&peer.identity);
        let slot = usize::try_from(hello.slot).ok().filter(|slot| *slot < vcuda_region::MAX_SLOTS);
        let process = Registered {
            host_pid: peer.host_pid,
            identity: peer.identity,
            slot,
            release: hello.release,
            layouts: hello.layouts,
        };
        // A process that is registered again is already watched.
        match self.registry.enter(&tenant, process) {
            Entered::New => {}
            Entered::Again => return Status::Accepted,
            Entered::Not => return Status::Full,
        }
        let number = self.next_number();
        if self.watch(&peer.pidfd, number).is_err() {
            self.registry.end(&tenant, key);
            return Status::Full;
        }
        let process = Process { tenant, key, _pidfd: peer.pidfd };
        self.processes.insert(number, process);
        Status::Accepted
    }
}
