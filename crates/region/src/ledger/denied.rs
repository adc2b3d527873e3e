//! The refusal of a reservation.

use core::fmt;

/// A reservation was refused: with it the tenant would exceed its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// Size of the request.
    pub requested_bytes: u64,
    /// Memory that the tenant's processes had on the device.
    pub used_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes refused: {} of the limit of {} bytes are in use; free memory or raise the limit with `vcuda set`",
            self.requested_bytes, self.used_bytes, self.limit_bytes
        )
    }
}

impl std::error::Error for Denied {}
