//! Notifications of changes in kubelet's directories, by inotify. Callers also wait with a timeout, as inotify cannot watch a
//! directory that does not exist yet.

use std::path::PathBuf;
use std::time::Duration;

use inotify::{Inotify, WatchMask};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tracing::debug;

/// Pause between attempts to watch a directory that does not exist yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Receiver of changes.
#[derive(Debug, Clone)]
pub struct DirectoryChanges(watch::Receiver<u64>);

impl DirectoryChanges {
    /// Watches these directories, whether or not they exist.
    #[must_use]
    pub fn watch(directories: Vec<PathBuf>) -> Self {
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
    pub async fn wait(&mut self, time: Duration) {
        if let Ok(Err(_)) = tokio::time::timeout(time, self.0.changed()).await {
            // The sender is gone; without the sleep the caller would spin.
            tokio::time::sleep(time).await;
        }
    }
}

/// Notifies of changes until a directory is replaced, or until a missing directory may exist.
async fn watch_directories(directories: &[PathBuf], sender: &watch::Sender<u64>) -> std::io::Result<()> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF;
    let mut watched = 0;
    for directory in directories {
        watched += usize::from(inotify.watches().add(directory, mask).is_ok());
    }
    let is_all = watched == directories.len();
    let mut buffer = [0; 4096];
    let mut events = inotify.into_event_stream(&mut buffer)?;
    loop {
        let next = tokio::time::timeout(RETRY_INTERVAL, events.next()).await;
        match next {
            Ok(Some(event)) => {
                sender.send_modify(|number| *number += 1);
                let gone = inotify::EventMask::DELETE_SELF
                    | inotify::EventMask::MOVE_SELF
                    | inotify::EventMask::IGNORED;
                if event?.mask.intersects(gone) {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(_) if !is_all || sender.is_closed() => return Ok(()),
            Err(_) => {}
        }
    }
}
