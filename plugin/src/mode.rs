//! The two modes in which pods get shares of a node's GPUs: by extended resources, which the device plugin allocates, and by
//! ResourceClaims, which the DRA driver prepares. A node has one mode at a time, as each daemon can release only its own grants.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;
use vcuda_daemon::lock_file;
use vcuda_manager_api::v1;

use crate::cdi::{ClaimRecord, SlotRecord, Store};
use crate::ids::Slot;
use crate::manager::Manager;
use crate::register::Directories;

/// Interval of tries to take the node's locks.
const LOCK_POLL: Duration = Duration::from_millis(20);
/// Beginning of the keys of all claims' grants.
pub(crate) const CLAIM_KEYS: &str = "claim-";
/// Longest wait for the manager's list of grants. If the manager does not answer, the files decide.
const DEADLINE: Duration = Duration::from_secs(1);
/// Interval of checks whether the shares of the other mode have ended.
const REFUSAL_POLL: Duration = Duration::from_secs(1);
/// Most pods that a refusal names.
const NAMED_MAX: usize = 3;

/// Whether a daemon has the node's locks. If not, the reason; `None` while another daemon is at work.
pub(crate) type LockState = Result<(), Option<String>>;

/// State of a daemon that has not tried yet to take the locks.
pub(crate) fn starting() -> LockState {
    Err(Some("it is starting".to_owned()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Extended resources.
    Plugin,
    /// ResourceClaims (Dynamic Resource Allocation).
    Dra,
}

impl Mode {
    /// Name in the chart, and in the node's label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Dra => "dra",
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Plugin => Self::Dra,
            Self::Dra => Self::Plugin,
        }
    }

    /// The mode of a grant; `None` if an operator made the grant.
    pub(crate) fn from_grant(grant: &v1::Grant) -> Option<Self> {
        match grant.key.starts_with(CLAIM_KEYS) {
            true => Some(Self::Dra),
            false => Slot::named(&grant.key).map(|_| Self::Plugin),
        }
    }

    /// Name of the file that the mode's daemon locks while it is at work.
    fn lock_name(self) -> &'static str {
        match self {
            Self::Plugin => "plugin.lock",
            Self::Dra => "dra.lock",
        }
    }

    /// Takes both modes' locks of the node, so that no other daemon of either mode is at work meanwhile.
    ///
    /// # Errors
    /// `WouldBlock` while another daemon holds a lock; else the directory cannot be used.
    pub(crate) fn lock_node(self, directories: &Directories) -> io::Result<[Flock<File>; 2]> {
        let own = try_lock(&directories.own().join(self.lock_name()))?;
        let other = try_lock(&directories.own().join(self.other().lock_name()))?;
        Ok([own, other])
    }

    /// Waits until this is the only daemon of the node and `refusal` gives no reason: two daemons would remove each other's
    /// sockets and count a GPU twice. Keeps `state` up to date.
    pub(crate) async fn wait_for_node<R: Future<Output = Option<String>>>(
        self,
        directories: &Directories,
        refusal: impl Fn() -> R,
        state: &watch::Sender<LockState>,
    ) -> [Flock<File>; 2] {
        loop {
            if let Some(why) = refusal().await {
                wait(state, Some(why));
                sleep(REFUSAL_POLL).await;
                continue;
            }
            let begun = Instant::now();
            while begun.elapsed() < REFUSAL_POLL {
                match self.lock_node(directories) {
                    Ok(locks) => match refusal().await {
                        None => {
                            state.send_modify(|state| *state = Ok(()));
                            return locks;
                        }
                        // The other daemon has created shares of its mode until its end.
                        Some(_) => break,
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(state, None),
                    Err(error) => {
                        let path = directories.own();
                        wait(
                            state,
                            Some(format!("{}: {error}; is kubelet's directory mounted?", path.display())),
                        );
                    }
                }
                sleep(LOCK_POLL).await;
            }
        }
    }

    /// The reason why a daemon of this mode must not work on the node: shares of the other mode live there.
    pub(crate) async fn refusal(self, store: &Store, manager: &Manager) -> Option<String> {
        let other = self.other();
        let mut live = users_of_mode(other, store);
        let grants = timeout(DEADLINE, manager.list()).await;
        let grants = grants.into_iter().flatten().flatten();
        for grant in grants.filter(|grant| Self::from_grant(grant) == Some(other)) {
            let holder = grant.holder.unwrap_or_default();
            live.insert(format!("{}/{}", holder.namespace, holder.pod));
        }
        refusal_text(self, &live)
    }
}

/// Sets the reason for the wait, and logs it once.
fn wait(state: &watch::Sender<LockState>, why: Option<String>) {
    state.send_if_modified(|known| {
        let waits = Err(why);
        let is_new = *known != waits;
        if let (true, Err(why)) = (is_new, &waits) {
            let another =
                "another device plugin or driver is at work on this node; this one waits for its end";
            warn!("{}", why.as_deref().unwrap_or(another));
        }
        *known = waits;
        is_new
    });
}

/// Names of the pods or claims that have files of this mode.
fn users_of_mode(mode: Mode, store: &Store) -> BTreeSet<String> {
    match mode {
        Mode::Plugin => {
            let records = store.records::<SlotRecord>().unwrap_or_default();
            records.into_iter().map(|record| record.held.pod).collect()
        }
        Mode::Dra => {
            let records = store.records::<ClaimRecord>().unwrap_or_default();
            let claim = |name: &str, namespace: &str| format!("claim {namespace}/{name}");
            records.iter().map(|record| claim(&record.name, &record.namespace)).collect()
        }
    }
}

fn refusal_text(mode: Mode, live: &BTreeSet<String>) -> Option<String> {
    let (own, other) = (mode.name(), mode.other().name());
    let mut shown: Vec<&str> = live.iter().map(String::as_str).take(NAMED_MAX).collect();
    if live.len() > NAMED_MAX {
        shown.push("...");
    }
    (!live.is_empty()).then(|| {
        format!(
            "mode {own} is refused while shares of mode {other} live on this node ({}): it waits for the end of their pods; or set \
             the mode back to {other}",
            shown.join(", ")
        )
    })
}

/// Takes the file lock at `path` for this process; `WouldBlock` if another process holds it.
fn try_lock(path: &Path) -> io::Result<Flock<File>> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let file = lock_file::open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_of_the_mode_that_named_it() {
        let mode = |key: &str| Mode::from_grant(&v1::Grant { key: key.to_owned(), ..v1::Grant::default() });
        assert_eq!(mode("claim-0123456789abcdef01234567-0a0b0c0d"), Some(Mode::Dra));
        assert_eq!(mode("0123456789abcdef"), Some(Mode::Plugin));
        assert_eq!(mode("an-operators"), None);
    }

    #[test]
    fn a_refusal_names_some_of_what_lives() {
        let live = |count: usize| (0..count).map(|number| format!("n/p{number}")).collect();
        assert_eq!(refusal_text(Mode::Dra, &live(0)), None);
        let few = refusal_text(Mode::Dra, &live(1)).unwrap();
        assert!(few.contains("shares of mode plugin live on this node (n/p0): "), "{few}");
        let many = refusal_text(Mode::Plugin, &live(9)).unwrap();
        assert!(many.contains("(n/p0, n/p1, n/p2, ...)"), "{many}");
    }

    #[test]
    fn one_daemon_of_either_mode_is_at_work() {
        let scratch = tempfile::tempdir().unwrap();
        let directories = Directories { kubelet: scratch.path().to_owned() };
        let taken = Mode::Plugin.lock_node(&directories).unwrap();
        for mode in [Mode::Plugin, Mode::Dra] {
            let error = mode.lock_node(&directories).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        drop(taken);
        Mode::Dra.lock_node(&directories).unwrap();
    }
}
