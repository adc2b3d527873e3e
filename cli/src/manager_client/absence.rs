//! Why no manager can be used.

use std::path::{Path, PathBuf};

use vcuda_manager_api::ConnectError;

use crate::config::ENV_MANAGER;
use crate::failure::{Failure, failed};

/// The reason why no manager can be used. Each has a remedy of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// None has ever run here, or none is to be used.
    NoManager,
    /// It has ended and left its socket behind.
    Down(String),
    /// It refuses this user.
    Denied(String),
    /// It does not answer.
    Silent(String),
}

/// A manager that has ended and left its socket behind, or that hangs. What it granted goes on.
#[derive(Debug)]
pub(crate) struct Down {
    socket: PathBuf,
    is_silent: bool,
}

impl Down {
    /// The one of these whose manager hangs, else the nearest that was left behind.
    pub(super) fn of(unreached: &[Unreached]) -> Option<Down> {
        let down = |socket: &PathBuf, is_silent| Some(Down { socket: socket.clone(), is_silent });
        let silent = unreached.iter().find_map(|one| match one {
            Unreached::Silent(socket) => down(socket, true),
            _ => None,
        });
        silent.or_else(|| {
            unreached.iter().find_map(|one| match one {
                Unreached::Socket(ConnectError::Dead(socket)) => down(socket, false),
                _ => None,
            })
        })
    }

    /// What a command says that works without a manager.
    pub(crate) fn words(&self) -> String {
        if self.is_silent {
            return format!("the manager of {} does not answer", self.socket.display());
        }
        ConnectError::Dead(self.socket.clone()).to_string()
    }

    /// Directory of the tenants that it granted.
    pub(crate) fn root(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }
}

impl Absence {
    /// The reason for all sockets together.
    pub(super) fn of(unreached: Vec<Unreached>) -> Absence {
        let is_any = |is_it: fn(&Unreached) -> bool| unreached.iter().any(is_it);
        let with_words = if is_any(Unreached::is_refusal) {
            Absence::Denied
        } else if is_any(|one| matches!(one, Unreached::Socket(ConnectError::Dead(_)))) {
            Absence::Down
        } else if unreached.iter().all(Unreached::is_not_running) {
            return Absence::NoManager;
        } else {
            Absence::Silent
        };
        with_words(failure_of(unreached).to_string())
    }
}

/// The reason why the manager of one socket cannot be used.
pub(crate) enum Unreached {
    Socket(ConnectError),
    /// The manager's refusal of this user.
    Refused(String),
    /// It accepts connections to this socket, and does not answer.
    Silent(PathBuf),
    Runtime(std::io::Error),
}

impl Unreached {
    /// Whether no manager runs there. One may be about to start.
    pub(crate) fn is_not_running(&self) -> bool {
        matches!(self, Unreached::Socket(ConnectError::Absent(_) | ConnectError::Dead(_)))
    }

    /// Whether a manager listens there and does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Unreached::Silent(_))
    }

    /// Whether a node is usually so for a user: without a manager, or with one that is for others.
    pub(crate) fn is_usual(&self) -> bool {
        self.is_not_running() || self.is_refusal()
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Unreached::Socket(ConnectError::Denied(_)) | Unreached::Refused(_))
    }
}

impl From<Unreached> for Failure {
    fn from(unreached: Unreached) -> Self {
        match unreached {
            Unreached::Socket(error @ ConnectError::Absent(_)) => Failure::Unavailable(format!(
                "{error}; start `vcuda-manager`, or name its socket in {ENV_MANAGER}"
            )),
            Unreached::Socket(error) => Failure::Unavailable(error.to_string()),
            Unreached::Refused(words) => Failure::Unavailable(words),
            Unreached::Silent(socket) => Failure::Unavailable(format!(
                "{}: the manager does not answer within {} s; its log says more (journalctl -u vcuda-manager), and no tenant \
                 notices if it is restarted",
                socket.display(),
                super::DEADLINE.as_secs()
            )),
            Unreached::Runtime(error) => failed(error),
        }
    }
}

/// Of several sockets, one that refuses this user explains more than a missing one.
pub(super) fn failure_of(unreached: Vec<Unreached>) -> Failure {
    let is_absent = |one: &Unreached| matches!(one, Unreached::Socket(ConnectError::Absent(_)));
    let at = unreached.iter().rposition(|one| !is_absent(one)).unwrap_or(0);
    unreached.into_iter().nth(at).map_or_else(
        || Failure::Unavailable(format!("{ENV_MANAGER} says that there is no manager; unset it")),
        Failure::from,
    )
}
