//! Bytes that this process has counted in the ledger for something that it holds.

use crate::devices::{Device, Reserved};

/// Bytes that stay counted as long as this lives: dropped, they are given back, once.
#[derive(Debug)]
pub(crate) struct Charge {
    device: &'static Device,
    bytes: u64,
}

impl Charge {
    /// The device that pays.
    pub(crate) fn device(&self) -> &'static Device {
        self.device
    }

    /// Bytes counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of a device of which nothing was granted.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            device: Device::for_tests(crate::shim::Shim::for_tests()),
            bytes: 1,
        }
    }
}

impl From<Reserved> for Charge {
    /// What the bytes were reserved for exists. Cannot fail.
    #[inline]
    fn from(reserved: Reserved) -> Self {
        let charge = Self {
            device: reserved.device(),
            bytes: reserved.bytes(),
        };
        reserved.commit();
        charge
    }
}

impl Drop for Charge {
    #[inline]
    fn drop(&mut self) {
        self.device.release(self.bytes);
    }
}
