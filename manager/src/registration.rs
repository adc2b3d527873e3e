//! Registration: each tenant's directory has a socket over which its processes register
//! ([`vcuda_region::registration`]). The kernel tells which process is at the other end (`SO_PEERCRED`), and when it
//! dies (a pidfd).
//!
//! One thread serves all sockets and never blocks: it reads a message, checks it, answers, and closes the connection. A
//! silent peer is disconnected after [`SILENCE_LIMIT`]. Peers that come too often stay in the kernel's queue, where they
//! cost nothing ([`allowance`]). A tenant can only fill its own queue and its own table.
//!
//! A process may also ask for NVML's figure of its memory; [`memory`] answers from another thread.

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

use crate::gpu::Processes;
use memory::Asker;
use server::Server;

pub use table::{Counts, Key, Members, Registered, Registry};

/// Maximum time that a peer may be silent.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of processes of one tenant.
pub const MOST_PROCESSES: usize = vcuda_region::MAX_SLOTS;
/// Maximum number of silent peers of one tenant, and of all tenants.
const MOST_SILENT: usize = 512;
const MOST_SILENT_IN_ALL: usize = 4096;

/// Thread that serves the sockets of all tenants under a root, until this is dropped. The sockets remain, and shims that
/// get no answer go on without.
#[derive(Debug)]
pub struct Registrar {
    registry: Arc<Registry>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Registrar {
    /// Starts the thread. `processes` asks NVML, and may block.
    pub fn start(root: &Path, processes: Box<Processes>) -> io::Result<Self> {
        let registry = Arc::new(Registry::default());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let asker = Asker::start(processes)?;
        let mut server = Server::new(root, Arc::clone(&registry), stop.try_clone()?, asker)?;
        let thread = std::thread::Builder::new().name("registrar".to_owned()).spawn(move || server.run())?;
        Ok(Self { registry, stop, thread: Some(thread) })
    }

    /// The registered processes.
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
