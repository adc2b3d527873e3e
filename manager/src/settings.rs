//! Settings of grants and API.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vcuda_quota::pods::bounds::Bounds;

use crate::admission::Rules;
use crate::grant_devices::DeviceSettings;
use crate::library;
use crate::users::LiveLimits;

/// All settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Runtime directory: tenants' directories, and the API's socket.
    pub root: PathBuf,
    /// Directory of the ledger.
    pub state: PathBuf,
    /// Bounds on the amounts that may be given.
    pub rules: Rules,
    /// Bounds on the amounts that a namespace's pods may choose.
    pub bounds: Bounds,
    /// Users that may use the API.
    pub api: Api,
    /// Devices of grants for container engines.
    pub devices: DeviceSettings,
    /// The shim of new containers.
    pub shim: Arc<library::Current>,
}

/// Settings of the API's socket, and limits for its users.
#[derive(Debug, Clone)]
pub struct Api {
    /// The socket's permissions.
    pub mode: u32,
    /// The socket's group, if not the manager's.
    pub group: Option<u32>,
    /// Groups that may look and not change.
    pub viewers: Vec<u32>,
    /// Limits of users, who may change their own grants.
    pub users: LiveLimits,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of connections of one user.
    pub connections_per_user: usize,
    /// Maximum number of concurrent requests on a connection.
    pub requests_per_connection: u32,
    /// Default and maximum of a request's deadline.
    pub deadline: Duration,
    /// Time within which a new connection must send its preface, and a silent one must answer a ping.
    pub peer_timeout: Duration,
    /// Maximum size of a request (bytes).
    pub request_bytes: usize,
    /// Time for open requests when the manager stops.
    pub drain: Duration,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            mode: 0o660,
            group: None,
            viewers: Vec::new(),
            users: LiveLimits::default(),
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
