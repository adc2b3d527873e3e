//! gRPC API of the node manager (documented in `proto/vcuda/v1/manager.proto`), and the connection to its socket.

/// Package `vcuda.v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("vcuda.v1");
}

mod connect;
mod names;
mod quota;

pub use connect::{ConnectError, connect, look};
pub use names::{KEY_MAX, REQUEST_MAX, RUN_MAX, is_key, is_name, is_run_name};
pub use quota::InvalidAmount;

/// Name of the API's socket in the runtime directory.
pub const SOCKET_NAME: &str = "manager.sock";
/// Log of a user's own manager, in the runtime directory; begun anew with each start.
pub const OWN_LOG: &str = "manager.log";
