//! What grants and the API are told at their start.

use std::path::PathBuf;
use std::time::Duration;

use crate::admission::Rules;
use crate::bounds::Bounds;

/// All of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Runtime directory: containers, and the API's socket.
    pub root: PathBuf,
    /// Where the ledger is.
    pub state: PathBuf,
    /// The node's name.
    pub node: String,
    /// How much may be given.
    pub rules: Rules,
    /// What the pods of a namespace may choose.
    pub bounds: Bounds,
    /// Who may use the API.
    pub api: Api,
}

/// The API's socket, and what one of its users may take.
#[derive(Debug, Clone)]
pub struct Api {
    /// The socket's permissions.
    pub mode: u32,
    /// The socket's group, if not the manager's.
    pub group: Option<u32>,
    /// Connections at a time.
    pub connections: usize,
    /// Of one user.
    pub connections_per_user: usize,
    /// Requests at a time on one connection.
    pub requests_per_connection: u32,
    /// A request's time if it brings none, and the most that it can bring.
    pub deadline: Duration,
    /// Until a new connection has said what it is, and until a silent one has answered.
    pub patience: Duration,
    /// The largest request (bytes).
    pub request_bytes: usize,
    /// How long open requests may go on when the manager stops.
    pub drain: Duration,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            mode: 0o660,
            group: None,
            connections: 512,
            connections_per_user: 256,
            requests_per_connection: 64,
            deadline: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            request_bytes: 1 << 20,
            drain: Duration::from_secs(5),
        }
    }
}
