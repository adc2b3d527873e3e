//! Multicast objects: their devices, and the bound memory.

use parking_lot::{Condvar, Mutex};
use vcuda_driver_api::prelude::*;

use crate::object::vmm::Hold;

/// Part of an allocation that makes it a multicast object.
#[derive(Debug)]
pub(crate) struct Team {
    size: usize,
    state: Mutex<State>,
    joined: Condvar,
}

#[derive(Debug, Default)]
struct State {
    devices: Vec<i32>,
    bound: Vec<Bound>,
}

/// A part of one device with bound memory.
#[derive(Debug)]
struct Bound {
    ordinal: i32,
    offset: u64,
    bytes: u64,
    /// `None` for pool memory, which its pool keeps.
    _hold: Option<Hold>,
}

impl Team {
    /// An object for `size` devices.
    pub(crate) fn new(size: usize) -> Team {
        Team { size, state: Mutex::default(), joined: Condvar::new() }
    }

    /// Adds a device. Error: `CUDA_ERROR_INVALID_VALUE` for a repeated or surplus device (docs/hardware.md,
    /// "multicast").
    pub(crate) fn add(&self, ordinal: i32) -> CUresult {
        let mut state = self.state.lock();
        if state.devices.contains(&ordinal) || state.devices.len() >= self.size {
            return Err(CUerror::INVALID_VALUE);
        }
        state.devices.push(ordinal);
        self.joined.notify_all();
        Ok(())
    }

    /// Binds memory of a device, after all devices were added. Errors: `CUDA_ERROR_INVALID_DEVICE` for a device that
    /// was not added, `CUDA_ERROR_INVALID_VALUE` for a bound part.
    pub(crate) fn bind(&self, ordinal: i32, offset: u64, bytes: u64, hold: Option<Hold>) -> CUresult {
        self.wait_for_all();
        let mut state = self.state.lock();
        if !state.devices.contains(&ordinal) {
            return Err(CUerror::INVALID_DEVICE);
        }
        let end = offset + bytes;
        let overlaps = |other: &Bound| {
            other.ordinal == ordinal && other.offset < end && offset < other.offset + other.bytes
        };
        if state.bound.iter().any(overlaps) {
            return Err(CUerror::INVALID_VALUE);
        }
        state.bound.push(Bound { ordinal, offset, bytes, _hold: hold });
        Ok(())
    }

    /// Unbinds a part that [`Team::bind`] bound. Error: `CUDA_ERROR_INVALID_VALUE` for any other part.
    pub(crate) fn unbind(&self, ordinal: i32, offset: u64, bytes: u64) -> CUresult {
        let mut state = self.state.lock();
        let is_it =
            |bound: &Bound| bound.ordinal == ordinal && bound.offset == offset && bound.bytes == bytes;
        let position = state.bound.iter().position(is_it).ok_or(CUerror::INVALID_VALUE)?;
        let bound = state.bound.swap_remove(position);
        drop(state);
        drop(bound);
        Ok(())
    }

    /// Waits until all devices were added: "a call to cuMemMap will block until all devices have been added"; the same for
    /// binding.
    pub(crate) fn wait_for_all(&self) {
        let mut state = self.state.lock();
        while state.devices.len() < self.size {
            self.joined.wait(&mut state);
        }
    }
}
