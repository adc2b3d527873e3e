//! Waits for and writes of values in memory, as data (`cuStreamBatchMemOp` and its relatives).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::object::{graph_memory, memory};

/// Condition that ends a wait (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// `(signed)(*addr - value) >= 0`, cyclic.
    GreaterOrEqual,
    /// `*addr == value`.
    Equal,
    /// `(*addr & value) != 0`.
    And,
    /// `~(*addr | value) != 0`.
    Nor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Four,
    Eight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOperation {
    /// Wait until the value at the address satisfies the condition.
    Wait {
        address: u64,
        width: Width,
        value: u64,
        condition: Condition,
    },
    Write {
        address: u64,
        width: Width,
        value: u64,
    },
}

impl MemoryOperation {
    /// Attempts the operation; false if a wait is not over. Memory that was freed meanwhile is not accessed, and a wait for
    /// it is over.
    pub(crate) fn attempt(&self) -> bool {
        self.is_gone() || self.act()
    }

    fn range(&self) -> (u64, u64) {
        let (MemoryOperation::Wait { address, width, .. } | MemoryOperation::Write { address, width, .. }) =
            *self;
        match width {
            Width::Four => (address, 4),
            Width::Eight => (address, 8),
        }
    }

    fn is_gone(&self) -> bool {
        let (address, bytes) = self.range();
        !memory::is_usable(address, bytes)
    }

    fn act(&self) -> bool {
        match *self {
            MemoryOperation::Wait { address, width, value, condition } => {
                condition.holds(width, load(address, width), value)
            }
            MemoryOperation::Write { address, width, value } => {
                store(address, width, value);
                true
            }
        }
    }

    /// Whether the address is aligned, and in memory that a device can use.
    pub(crate) fn is_valid(&self) -> bool {
        let (address, bytes) = self.range();
        let is_memory = !self.is_gone() || graph_memory::planned(address, bytes).is_some();
        address % bytes == 0 && is_memory
    }
}

impl Condition {
    fn holds(self, width: Width, found: u64, value: u64) -> bool {
        let is_negative = |difference: u64| match width {
            Width::Four => difference & (1 << 31) != 0,
            Width::Eight => difference & (1 << 63) != 0,
        };
        match self {
            Condition::GreaterOrEqual => !is_negative(found.wrapping_sub(value)),
            Condition::Equal => found == value,
            Condition::And => found & value != 0,
            Condition::Nor => match width {
                Width::Four => !(found | value) & u64::from(u32::MAX) != 0,
                Width::Eight => !(found | value) != 0,
            },
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "addresses are 64 bits wide here")]
fn load(address: u64, width: Width) -> u64 {
    match width {
        Width::Four => {
            // SAFETY: an aligned address that the program gave for the device to read; atomics may be made of
            // memory that others write. The program keeps it alive until the operation is done.
            let word = unsafe { AtomicU32::from_ptr(address as usize as *mut u32) };
            u64::from(word.load(Ordering::Acquire))
        }
        Width::Eight => {
            // SAFETY: as above.
            let word = unsafe { AtomicU64::from_ptr(address as usize as *mut u64) };
            word.load(Ordering::Acquire)
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a 32-bit operation has a 32-bit value")]
fn store(address: u64, width: Width, value: u64) {
    match width {
        Width::Four => {
            // SAFETY: as in `load`, for writing.
            let word = unsafe { AtomicU32::from_ptr(address as usize as *mut u32) };
            word.store(value as u32, Ordering::Release);
        }
        Width::Eight => {
            // SAFETY: as in `load`, for writing.
            let word = unsafe { AtomicU64::from_ptr(address as usize as *mut u64) };
            word.store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_as_documented() {
        use Condition::{And, Equal, GreaterOrEqual, Nor};
        for (condition, width, found, value, expected) in [
            (GreaterOrEqual, Width::Four, 5, 5, true),
            (GreaterOrEqual, Width::Four, 4, 5, false),
            (GreaterOrEqual, Width::Four, 1, 0xffff_fff0, true), // cyclic
            (GreaterOrEqual, Width::Eight, 1, 0xffff_fff0, false),
            (Equal, Width::Four, 7, 7, true),
            (Equal, Width::Eight, 7, 8, false),
            (And, Width::Four, 6, 2, true),
            (And, Width::Four, 4, 2, false),
            (Nor, Width::Four, 0xffff_ffff, 0, false),
            (Nor, Width::Eight, 0xffff_ffff, 0, true),
        ] {
            assert_eq!(condition.holds(width, found, value), expected, "{condition:?} {found:#x} {value:#x}");
        }
    }

    #[test]
    fn a_write_lets_a_wait_pass() {
        let mut word = 0u64;
        let address = (&raw mut word) as usize as u64;
        let wait =
            MemoryOperation::Wait { address, width: Width::Eight, value: 3, condition: Condition::Equal };
        assert!(!wait.act());
        assert!(MemoryOperation::Write { address, width: Width::Eight, value: 3 }.act());
        assert!(wait.act());
    }
}
