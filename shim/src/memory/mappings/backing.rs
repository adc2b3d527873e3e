//! One piece of physical memory, and what is counted for it.

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_region::shared::{ObjectKey, Outlives};

use crate::memory::charge::Charge;
use crate::runtime::devices::{Denied, Device};

/// One piece of physical memory. What is counted for it is given back with its last owner.
#[derive(Debug)]
pub(crate) struct Backing {
    content: Mutex<Content>,
}

#[derive(Debug)]
enum Content {
    /// Counted. The other charges are for what turned out to be there beyond the first.
    Charged(Charge, Vec<Charge>),
    /// From outside of the container: the driver does not tell its size before it is mapped.
    Unsized(&'static Device, ObjectKey),
    /// Costs nothing itself: a multicast object, and what is bound to it.
    Free(Option<ObjectKey>, Vec<Binding>),
}

/// Memory that is bound to a multicast object.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The GPU that it is on, by its ordinal.
    pub(crate) ordinal: i32,
    /// Where in the object (bytes).
    pub(crate) offset: u64,
    /// How much of it (bytes).
    pub(crate) bytes: u64,
    /// The memory.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(crate) memory: Vec<Arc<Backing>>,
}

impl Backing {
    fn new(content: Content) -> Self {
        Self {
            content: Mutex::new(content),
        }
    }

    /// Memory that is counted.
    pub(crate) fn charged(charge: Charge) -> Self {
        Self::new(Content::Charged(charge, Vec::new()))
    }

    /// Memory from outside of the container, to be counted under this key when its size is known.
    pub(crate) fn of_unknown_size(device: &'static Device, key: ObjectKey) -> Self {
        Self::new(Content::Unsized(device, key))
    }

    /// A multicast object.
    pub(crate) fn free(key: Option<ObjectKey>) -> Self {
        Self::new(Content::Free(key, Vec::new()))
    }

    /// The driver has mapped `bytes` of it: it has as many at least.
    ///
    /// # Errors
    /// More than was counted, and that does not fit.
    pub(crate) fn cover(&self, bytes: u64) -> Result<(), Denied> {
        loop {
            let missing = self.content.lock().missing(bytes);
            // Counted without the lock: before anybody is refused, the driver is asked about much.
            let found = match missing {
                Missing::Nothing => return Ok(()),
                Missing::All(device, key) => {
                    Content::Charged(Charge::join_foreign(device, key, bytes)?, Vec::new())
                }
                Missing::Rest(device, rest) => {
                    let rest = device.reserve(rest)?.into();
                    if self.content.lock().add(rest, bytes) {
                        return Ok(());
                    }
                    continue;
                }
            };
            let mut content = self.content.lock();
            // Another thread may have been faster; and another process of the container may have seen less of it.
            let surplus = match &*content {
                Content::Unsized(..) => core::mem::replace(&mut *content, found),
                Content::Charged(..) | Content::Free(..) => found,
            };
            drop(content);
            drop(surplus);
        }
    }

    /// The memory was given away as a descriptor under `key`, and `keeper` may keep it from now on.
    ///
    /// # Errors
    /// The container cannot count it beyond the end of this process: it must not be given away.
    pub(crate) fn give_away(&self, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        match &mut *self.content.lock() {
            Content::Charged(charge, more) if more.is_empty() => charge.give_away(key, keeper),
            Content::Charged(..) => Err(Denied),
            Content::Free(known, _) => {
                *known = known.or(Some(key));
                Ok(())
            }
            // From outside of the container, and not mapped yet: its exporter pays.
            Content::Unsized(..) => Ok(()),
        }
    }

    /// Tells the container under which key this memory goes.
    pub(crate) fn share(&self, key: ObjectKey) {
        match &mut *self.content.lock() {
            Content::Charged(charge, _) => charge.share(key),
            Content::Free(known, _) => *known = known.or(Some(key)),
            Content::Unsized(..) => {}
        }
    }

    /// The driver is about to be asked to end the handle or mapping that `of` stands for: if it is the last one, the
    /// memory ends with it.
    pub(crate) fn end(of: &Arc<Self>) {
        if Arc::strong_count(of) == 1
            && let Content::Charged(charge, _) = &mut *of.content.lock()
        {
            charge.end();
        }
    }

    /// Under which key the container knows it.
    pub(crate) fn key(&self) -> Option<ObjectKey> {
        match &*self.content.lock() {
            Content::Charged(charge, _) => charge.key(),
            Content::Unsized(_, key) => Some(*key),
            Content::Free(key, _) => *key,
        }
    }

    /// What this process alone counts for it on the device (bytes).
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        match &*self.content.lock() {
            Content::Charged(charge, more) => {
                let charges = more.iter().chain([charge]);
                charges.map(|charge| charge.own_bytes_on(device)).sum()
            }
            Content::Unsized(..) | Content::Free(..) => 0,
        }
    }

    /// Bytes counted, as far as they are known.
    pub(crate) fn bytes(&self) -> u64 {
        match &*self.content.lock() {
            Content::Charged(charge, more) => charge.bytes() + more.iter().map(Charge::bytes).sum::<u64>(),
            Content::Unsized(..) | Content::Free(..) => 0,
        }
    }

    /// Whether it costs nothing itself.
    pub(crate) fn is_free(&self) -> bool {
        matches!(*self.content.lock(), Content::Free(..))
    }

    /// It has turned out to be a multicast object.
    pub(crate) fn set_free(&self) {
        let mut content = self.content.lock();
        let key = match &*content {
            Content::Free(..) => return,
            Content::Charged(charge, _) => charge.key(),
            Content::Unsized(_, key) => Some(*key),
        };
        let before = core::mem::replace(&mut *content, Content::Free(key, Vec::new()));
        drop(content);
        drop(before);
    }

    /// Holds what is bound to this multicast object.
    pub(crate) fn bind(&self, binding: Binding) {
        if let Content::Free(_, bindings) = &mut *self.content.lock() {
            bindings.push(binding);
        }
    }

    /// Takes out what is bound on a GPU within a range, wholly.
    pub(crate) fn unbind(&self, ordinal: i32, offset: u64, bytes: u64) -> Vec<Binding> {
        let end = offset.saturating_add(bytes);
        let is_within = |bound: &Binding| {
            bound.ordinal == ordinal
                && bound.offset >= offset
                && bound.offset.saturating_add(bound.bytes) <= end
        };
        match &mut *self.content.lock() {
            Content::Free(_, bindings) => bindings.extract_if(.., |bound| is_within(bound)).collect(),
            Content::Charged(..) | Content::Unsized(..) => Vec::new(),
        }
    }

    /// The GPU that it is on, by its ordinal.
    pub(crate) fn ordinal(&self) -> Option<i32> {
        match &*self.content.lock() {
            Content::Charged(charge, _) => Some(charge.device().ordinal),
            Content::Unsized(device, _) => Some(device.ordinal),
            Content::Free(..) => None,
        }
    }
}

impl Drop for Backing {
    /// A multicast object that other processes may hold lives on with what is bound to it, until they let go, which
    /// nobody here sees: what this process did not unbind stays counted as long as it lives. More is counted, never less.
    fn drop(&mut self) {
        let content = core::mem::replace(self.content.get_mut(), Content::Free(None, Vec::new()));
        match content {
            Content::Free(Some(_), bindings) => core::mem::forget(bindings),
            Content::Free(None, _) | Content::Charged(..) | Content::Unsized(..) => {}
        }
    }
}

/// What is not counted of memory that was mapped.
enum Missing {
    Nothing,
    All(&'static Device, ObjectKey),
    Rest(&'static Device, u64),
}

impl Content {
    fn missing(&self, bytes: u64) -> Missing {
        match self {
            Self::Free(..) => Missing::Nothing,
            Self::Unsized(device, key) => Missing::All(device, *key),
            Self::Charged(charge, more) => {
                let counted = charge.bytes() + more.iter().map(Charge::bytes).sum::<u64>();
                match bytes.checked_sub(counted) {
                    None | Some(0) => Missing::Nothing,
                    Some(rest) => Missing::Rest(charge.device(), rest),
                }
            }
        }
    }

    /// Adds a charge if with it, and not without it, `bytes` are counted. Returns whether it did.
    fn add(&mut self, rest: Charge, bytes: u64) -> bool {
        if let (Missing::Rest(_, missing), Self::Charged(_, more)) = (self.missing(bytes), &mut *self)
            && missing <= rest.bytes()
        {
            more.push(rest);
            return true;
        }
        false
    }
}
