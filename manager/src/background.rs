//! A thread of the manager for blocking work. Dropping its owner asks it to end, wakes it, and waits for it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

use tokio::sync::watch;

/// A thread that ends when this is dropped.
pub(crate) struct Background {
    stop: Stop,
    /// Ends a wait of the thread that is not `park_timeout`.
    wake: Box<dyn Fn() + Send + Sync>,
    thread: Thread,
    end: Option<JoinHandle<()>>,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// Request to end, which the thread checks after each of its waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Background {
    /// Starts `work` on a thread of this name (at most 15 bytes are shown).
    pub(crate) fn start(name: &str, work: impl FnOnce(&Stop) + Send + 'static) -> io::Result<Self> {
        Self::with_wake(name, Box::new(|| ()), work)
    }

    /// As [`Background::start`], for a thread with other waits than `park_timeout`: `wake` ends them.
    pub(crate) fn with_wake(
        name: &str,
        wake: Box<dyn Fn() + Send + Sync>,
        work: impl FnOnce(&Stop) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Stop::default();
        let told = stop.clone();
        let end = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&told))?;
        Ok(Self { stop, wake, thread: end.thread().clone(), end: Some(end) })
    }

    /// The thread; unparking it ends its `park_timeout`.
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        if let Some(end) = self.end.take() {
            self.thread.unpark();
            (self.wake)();
            // A thread that panicked has ended too.
            let _ = end.join();
        }
    }
}

/// Waits until the manager is to stop, or until the sender is gone.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
