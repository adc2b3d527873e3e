//! Settings of grants and the API, given at their start.

use std::path::PathBuf;
use std::time::Duration;

use crate::admission::Rules;
use crate::bounds::Bounds;

/// All of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Runtime directory: tenants' directories, and the API's socket.
    pub root: PathBuf,
    /// Directory of the ledger.
    pub state: PathBuf,
    /// The node's name.
    pub node: String,
    /// Bounds on the amounts that may be given.
    pub rules: Rules,
    /// Bounds on the choice of a namespace's pods.
    pub bounds: Bounds,
    /// Users that may use the API.
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
    /// Connections of one user.
    pub connections_per_user: usize,
    /// Requests at a time on one connection.
    pub requests_per_connection: u32,
    /// Time limit of a request that brings none, and the longest that one can bring.
    pub deadline: Duration,
    /// Time until a new connection must have spoken, and until a silent one must have answered.
    pub peer_timeout: Duration,
    /// The largest request (bytes).
    pub request_bytes: usize,
    /// Time that open requests may go on when the manager stops.
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
            peer_timeout: Duration::from_secs(10),
            request_bytes: 1 << 20,
            drain: Duration::from_secs(5),
        }
    }
}
