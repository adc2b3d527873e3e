//! Registration: each container's directory has a socket over which its processes say that they are there
//! ([`vcuda_region::registration`]). The kernel tells who is at the other end (`SO_PEERCRED`) and of its death (a pidfd).
//!
//! One thread of its own serves all sockets: a message is taken, checked and answered at once, and the connection closed.
//! Nothing is waited for. Whoever connects and says nothing is closed after [`PATIENCE`]; who comes too often is left in the
//! kernel's queue, where it costs nothing ([`allowance`]). A container can only fill its own queue and its own table.
//!
//! A process may also ask what NVML says of its memory; [`memory`] answers from another thread.

mod allowance;
mod listener;
mod memory;
mod peer;
mod server;
mod table;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::audit::Processes;
use memory::Asker;
use server::Server;

pub use table::{Counts, Key, Members, Registered, Registry};

/// How long a peer may be silent.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Processes of one container, at most.
pub const MOST_PROCESSES: usize = vcuda_region::MAX_SLOTS;
/// Silent peers of one container, and of all of them, at most.
const MOST_SILENT: usize = 512;
const MOST_SILENT_IN_ALL: usize = 4096;

/// The thread that serves the sockets of all containers under a root, until this is dropped. The sockets stay then: shims
/// find nobody there, and go on.
#[derive(Debug)]
pub struct Registrar {
    registry: Arc<Registry>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Registrar {
    /// Starts it. `processes` asks NVML, and may block.
    ///
    /// # Errors
    /// No descriptors or no thread is left.
    pub fn start(root: &Path, processes: Box<Processes>) -> io::Result<Self> {
        let registry = Arc::new(Registry::default());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let asker = Asker::start(processes)?;
        let mut server = Server::new(root, Arc::clone(&registry), stop.try_clone()?, asker)?;
        let thread = std::thread::Builder::new()
            .name("registrar".to_owned())
            .spawn(move || server.run())?;
        Ok(Self {
            registry,
            stop,
            thread: Some(thread),
        })
    }

    /// Who has registered.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        let told = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (told, self.thread.take()) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
