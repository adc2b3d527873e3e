//! Changes in kubelet's directories, told by the kernel; and a look now and then all the same, as inotify knows nothing of a
//! directory that was not there.

use std::path::PathBuf;
use std::time::Duration;

use inotify::{Inotify, WatchMask};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tracing::debug;

/// Pause between attempts to watch a folder that does not exist yet.
const AGAIN: Duration = Duration::from_secs(1);

/// Receiver of changes.
#[derive(Debug, Clone)]
pub struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Watches these, whether or not they are there.
    #[must_use]
    pub fn of(directories: Vec<PathBuf>) -> Self {
        let (sender, changes) = watch::channel(0);
        tokio::spawn(async move {
            while !sender.is_closed() {
                if let Err(error) = follow(&directories, &sender).await {
                    debug!("changes are looked for, not told: {error}");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        Self(changes)
    }

    /// Until something has changed since the last call, at most for `time`.
    pub async fn next(&mut self, time: Duration) {
        if let Ok(Err(_)) = tokio::time::timeout(time, self.0.changed()).await {
            // No sender is left.
            tokio::time::sleep(time).await;
        }
    }
}

/// Tells changes until one of the directories is replaced, or was not there and may be now.
async fn follow(directories: &[PathBuf], sender: &watch::Sender<u64>) -> std::io::Result<()> {
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
        let next = tokio::time::timeout(AGAIN, events.next()).await;
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
