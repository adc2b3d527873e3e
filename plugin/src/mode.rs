//! The two ways in which pods ask for shares of a node's GPUs: by counts of resources, which the device plugin gives out, and by
//! claims, which the driver prepares. A node has one at a time: what the one has given only it can take back.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::time::Duration;

use nix::fcntl::Flock;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use vcuda_manager_api::v1;

use crate::cdi::Store;
use crate::ids::Slot;
use crate::manager::Manager;
use crate::register::Directories;
use crate::run::{TURN_LOOK, lock};

/// Beginning of the keys of all claims' grants.
pub const CLAIM_KEYS: &str = "claim-";
/// The longest wait for the manager's grants. The files alone say enough where it is away.
const DEADLINE: Duration = Duration::from_secs(1);
/// Between looks whether what is in the way has ended.
const REFUSED_LOOK: Duration = Duration::from_secs(1);
/// Pods that a sentence names.
const SHOWN: usize = 3;

/// A way in which pods ask for shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By counts of resources.
    Plugin,
    /// By claims.
    Dra,
}

impl Mode {
    /// Its name in the chart, and in the node's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Dra => "dra",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Plugin => Self::Dra,
            Self::Dra => Self::Plugin,
        }
    }

    /// The mode of a grant; none of one that an operator made.
    #[must_use]
    pub fn of(grant: &v1::Grant) -> Option<Self> {
        match grant.key.starts_with(CLAIM_KEYS) {
            true => Some(Self::Dra),
            false => Slot::named(&grant.key).map(|_| Self::Plugin),
        }
    }

    /// Name of the file that its daemon locks while it is at work.
    fn lock(self) -> &'static str {
        match self {
            Self::Plugin => "plugin.lock",
            Self::Dra => "dra.lock",
        }
    }

    /// Takes the node for this mode: its own lock, and the other mode's, so that neither daemon is at work while this one is.
    ///
    /// # Errors
    /// `WouldBlock` while another is; or the directory cannot be used.
    pub(crate) fn take(self, directories: &Directories) -> io::Result<[Flock<File>; 2]> {
        let own = lock(&directories.own().join(self.lock()))?;
        let other = lock(&directories.own().join(self.other().lock()))?;
        Ok([own, other])
    }

    /// Waits until this is the only daemon of the node, and nothing is in the way of its mode: two would take each other's sockets
    /// away, and count a GPU twice. `tell` is told what is in the way; nothing, while it is another daemon.
    pub(crate) async fn turn<R: Future<Output = Option<String>>>(
        self,
        directories: &Directories,
        refusal: impl Fn() -> R,
        mut tell: impl FnMut(Option<String>),
    ) -> [Flock<File>; 2] {
        loop {
            if let Some(why) = refusal().await {
                tell(Some(why));
                sleep(REFUSED_LOOK).await;
                continue;
            }
            let begun = Instant::now();
            while begun.elapsed() < REFUSED_LOOK {
                match self.take(directories) {
                    Ok(locks) => match refusal().await {
                        None => return locks,
                        // It was given until the other daemon's end.
                        Some(_) => break,
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => tell(None),
                    Err(error) => {
                        let path = directories.own();
                        tell(Some(format!(
                            "{}: {error}; is kubelet's directory mounted?",
                            path.display()
                        )));
                    }
                }
                sleep(TURN_LOOK).await;
            }
        }
    }

    /// The reason why a daemon of this mode must not work on the node: what the other mode has given lives there.
    pub(crate) async fn refusal(self, store: &Store, manager: &Manager) -> Option<String> {
        let other = self.other();
        let store = store.clone();
        let files = spawn_blocking(move || named(other, &store)).await;
        let mut live = files.unwrap_or_default();
        let grants = timeout(DEADLINE, manager.list()).await;
        let grants = grants.into_iter().flatten().flatten();
        for grant in grants.filter(|grant| Self::of(grant) == Some(other)) {
            let holder = grant.holder.unwrap_or_default();
            live.insert(format!("{}/{}", holder.namespace, holder.pod));
        }
        sentence(self, &live)
    }
}

/// Pods or claims with files of this mode.
fn named(mode: Mode, store: &Store) -> BTreeSet<String> {
    match mode {
        Mode::Plugin => {
            let records = store.records().unwrap_or_default();
            records.into_iter().map(|record| record.held.pod).collect()
        }
        Mode::Dra => {
            let records = store.claim_records().unwrap_or_default();
            let claim = |name: &str, namespace: &str| format!("claim {namespace}/{name}");
            records
                .iter()
                .map(|record| claim(&record.name, &record.namespace))
                .collect()
        }
    }
}

fn sentence(mode: Mode, live: &BTreeSet<String>) -> Option<String> {
    let (own, other) = (mode.name(), mode.other().name());
    let mut shown: Vec<&str> = live.iter().map(String::as_str).take(SHOWN).collect();
    if live.len() > SHOWN {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_of_the_mode_that_named_it() {
        let of = |key: &str| {
            Mode::of(&v1::Grant {
                key: key.to_owned(),
                ..v1::Grant::default()
            })
        };
        assert_eq!(of("claim-0123456789abcdef01234567-0a0b0c0d"), Some(Mode::Dra));
        assert_eq!(of("0123456789abcdef"), Some(Mode::Plugin));
        assert_eq!(of("an-operators"), None);
    }

    #[test]
    fn a_refusal_names_some_of_what_lives() {
        let live = |count: usize| (0..count).map(|number| format!("n/p{number}")).collect();
        assert_eq!(sentence(Mode::Dra, &live(0)), None);
        let few = sentence(Mode::Dra, &live(1)).unwrap();
        assert!(
            few.contains("shares of mode plugin live on this node (n/p0): "),
            "{few}"
        );
        let many = sentence(Mode::Plugin, &live(9)).unwrap();
        assert!(many.contains("(n/p0, n/p1, n/p2, ...)"), "{many}");
    }

    #[test]
    fn one_daemon_of_either_mode_is_at_work() {
        let scratch = tempfile::tempdir().unwrap();
        let directories = Directories {
            kubelet: scratch.path().to_owned(),
        };
        let taken = Mode::Plugin.take(&directories).unwrap();
        for mode in [Mode::Plugin, Mode::Dra] {
            let error = mode.take(&directories).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        drop(taken);
        Mode::Dra.take(&directories).unwrap();
    }
}
