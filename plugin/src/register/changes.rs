//! Notifications of changes in kubelet's directories, by inotify. Callers also wait with a timeout, as inotify cannot watch a
//! directory that does not exist yet.

use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tracing::debug;

/// Pause between attempts to watch a directory that does not exist yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct DirectoryChanges(watch::Receiver<u64>);

impl DirectoryChanges {
    /// Watches these directories, whether or not they exist.
    pub(crate) fn watch(directories: Vec<PathBuf>) -> Self {
        let (sender, changes) = watch::channel(0);
        tokio::spawn(async move {
            while !sender.is_closed() {
                if let Err(error) = watch_directories(&directories, &sender).await {
                    debug!("changes are looked for, not told: {error}");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        });
        Self(changes)
    }

    /// Waits for a change since the last call, at most for `time`.
    pub(crate) async fn wait(&mut self, time: Duration) {
        if let Ok(Err(_)) = tokio::time::timeout(time, self.0.changed()).await {
            // The sender is gone; without the sleep the caller would spin.
            tokio::time::sleep(time).await;
        }
    }
}

/// An inotify instance that tokio can wait for.
struct Notifications(Inotify);

impl AsRawFd for Notifications {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Notifies of changes until a directory is replaced, or until a missing directory may exist.
async fn watch_directories(directories: &[PathBuf], sender: &watch::Sender<u64>) -> std::io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mask = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    let gone = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_IGNORED;
    let mut watched = 0;
    for directory in directories {
        watched += usize::from(inotify.add_watch(directory, mask).is_ok());
    }
    let is_all = watched == directories.len();
    #[expect(
        deprecated,
        reason = "its successor is unsafe: it demands what holds here, that the owner keeps the descriptor open"
    )]
    let notifications = AsyncFd::with_interest(Notifications(inotify), Interest::READABLE)?;
    loop {
        let read = notifications.async_io(Interest::READABLE, |inotify| Ok(inotify.0.read_events()?));
        match tokio::time::timeout(RETRY_INTERVAL, read).await {
            Ok(events) => {
                sender.send_modify(|number| *number += 1);
                if events?.iter().any(|event| event.mask.intersects(gone)) {
                    return Ok(());
                }
            }
            Err(_) if !is_all || sender.is_closed() => return Ok(()),
            Err(_) => {}
        }
    }
}
