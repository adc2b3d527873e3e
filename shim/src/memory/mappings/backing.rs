//! A piece of physical memory, and its charge.

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_region::shared::{ObjectKey, Outlives};

use crate::memory::charge::Charge;
use crate::runtime::shim::devices::{Denied, Device};

/// A piece of physical memory. Its charge is given back with its last owner.
#[derive(Debug)]
pub(crate) struct Backing {
    content: Mutex<Content>,
}

#[derive(Debug)]
enum Content {
    /// Counted. The list has charges for bytes that turned out to exist beyond the first charge.
    Charged(Charge, Vec<Charge>),
    /// Memory from outside of the tenant whose size the driver does not tell before it is mapped.
    Unsized(&'static Device, ObjectKey),
    /// A multicast object, which needs no memory itself, and what is bound to it.
    Multicast(Option<ObjectKey>, Vec<Binding>),
}

/// Memory that is bound to a multicast object.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The GPU that it is on, by its ordinal.
    pub(crate) ordinal: i32,
    /// Offset in the object (bytes).
    pub(crate) offset: u64,
    /// Length (bytes).
    pub(crate) bytes: u64,
    /// The memory.
    #[expect(dead_code, reason = "held to be dropped")]
    pub(crate) memory: Vec<Arc<Backing>>,
}

impl Backing {
    fn new(content: Content) -> Self {
        Self { content: Mutex::new(content) }
    }

    /// Memory that is counted.
    pub(crate) fn charged(charge: Charge) -> Self {
        Self::new(Content::Charged(charge, Vec::new()))
    }

    /// Memory from outside of the tenant, to be counted under this key once its size is known.
    pub(crate) fn of_unknown_size(device: &'static Device, key: ObjectKey) -> Self {
        Self::new(Content::Unsized(device, key))
    }

    /// A multicast object.
    pub(crate) fn multicast(key: Option<ObjectKey>) -> Self {
        Self::new(Content::Multicast(key, Vec::new()))
    }

    /// Notes that the driver has mapped `bytes` of it, so that at least as many exist.
    ///
    /// # Errors
    /// Fails if that is more than was counted, and the rest does not fit.
    pub(crate) fn cover(&self, bytes: u64) -> Result<(), Denied> {
        loop {
            let missing = self.content.lock().missing(bytes);
            // Counted without the lock: a reservation that does not fit calls the driver several times.
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
            // Another thread may have been faster, or another process of the tenant may have counted less of it.
            let surplus = match &*content {
                Content::Unsized(..) => core::mem::replace(&mut *content, found),
                Content::Charged(..) | Content::Multicast(..) => found,
            };
            drop(content);
            drop(surplus);
        }
    }

    /// Notes that the memory was exported as a descriptor under `key`. `keeper` may keep it from now on.
    ///
    /// # Errors
    /// Fails if the tenant cannot count it beyond the end of this process: it must not be exported.
    pub(crate) fn note_export(&self, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        match &mut *self.content.lock() {
            Content::Charged(charge, more) if more.is_empty() => charge.note_export(key, keeper),
            Content::Charged(..) => Err(Denied),
            Content::Multicast(known, _) => {
                *known = known.or(Some(key));
                Ok(())
            }
            // From outside of the tenant, and not mapped yet: its exporter pays.
            Content::Unsized(..) => Ok(()),
        }
    }

    /// Publishes this memory to the tenant under `key`.
    pub(crate) fn share(&self, key: ObjectKey) {
        match &mut *self.content.lock() {
            Content::Charged(charge, _) => charge.share(key),
            Content::Multicast(known, _) => *known = known.or(Some(key)),
            Content::Unsized(..) => {}
        }
    }

    /// Prepares for the end of the handle or mapping that `of` stands for. If it is the last one, the memory ends
    /// with it.
    pub(crate) fn end(of: &Arc<Self>) {
        if Arc::strong_count(of) == 1
            && let Content::Charged(charge, _) = &mut *of.content.lock()
        {
            charge.end();
        }
    }

    /// The key by which the tenant knows it.
    pub(crate) fn key(&self) -> Option<ObjectKey> {
        match &*self.content.lock() {
            Content::Charged(charge, _) => charge.key(),
            Content::Unsized(_, key) => Some(*key),
            Content::Multicast(key, _) => *key,
        }
    }

    /// Bytes that this process alone counts for it on the device.
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        match &*self.content.lock() {
            Content::Charged(charge, more) => {
                let charges = more.iter().chain([charge]);
                charges.map(|charge| charge.own_bytes_on(device)).sum()
            }
            Content::Unsized(..) | Content::Multicast(..) => 0,
        }
    }

    /// Bytes counted so far.
    pub(crate) fn bytes(&self) -> u64 {
        match &*self.content.lock() {
            Content::Charged(charge, more) => charge.bytes() + more.iter().map(Charge::bytes).sum::<u64>(),
            Content::Unsized(..) | Content::Multicast(..) => 0,
        }
    }

    /// Whether it is a multicast object.
    pub(crate) fn is_multicast(&self) -> bool {
        matches!(*self.content.lock(), Content::Multicast(..))
    }

    /// Notes that it turned out to be a multicast object.
    pub(crate) fn set_multicast(&self) {
        let mut content = self.content.lock();
        let key = match &*content {
            Content::Multicast(..) => return,
            Content::Charged(charge, _) => charge.key(),
            Content::Unsized(_, key) => Some(*key),
        };
        let before = core::mem::replace(&mut *content, Content::Multicast(key, Vec::new()));
        drop(content);
        drop(before);
    }

    /// Keeps the memory that is bound to this multicast object.
    pub(crate) fn bind(&self, binding: Binding) {
        if let Content::Multicast(_, bindings) = &mut *self.content.lock() {
            bindings.push(binding);
        }
    }

    /// Takes out the bindings on a GPU that lie wholly within a range.
    pub(crate) fn unbind(&self, ordinal: i32, offset: u64, bytes: u64) -> Vec<Binding> {
        let end = offset.saturating_add(bytes);
        let is_within = |bound: &Binding| {
            bound.ordinal == ordinal
                && bound.offset >= offset
                && bound.offset.saturating_add(bound.bytes) <= end
        };
        match &mut *self.content.lock() {
            Content::Multicast(_, bindings) => bindings.extract_if(.., |bound| is_within(bound)).collect(),
            Content::Charged(..) | Content::Unsized(..) => Vec::new(),
        }
    }

    /// The GPU that it is on, by its ordinal.
    pub(crate) fn ordinal(&self) -> Option<i32> {
        match &*self.content.lock() {
            Content::Charged(charge, _) => Some(charge.device().ordinal),
            Content::Unsized(device, _) => Some(device.ordinal),
            Content::Multicast(..) => None,
        }
    }
}

impl Drop for Backing {
    /// Keeps the bindings of a multicast object that other processes may hold. The object lives until they let go,
    /// which this process cannot see. So what it did not unbind stays counted as long as the process lives: too much,
    /// never too little.
    fn drop(&mut self) {
        let content = core::mem::replace(self.content.get_mut(), Content::Multicast(None, Vec::new()));
        match content {
            Content::Multicast(Some(_), bindings) => core::mem::forget(bindings),
            Content::Multicast(None, _) | Content::Charged(..) | Content::Unsized(..) => {}
        }
    }
}

/// Memory that was mapped and is not counted yet.
enum Missing {
    Nothing,
    All(&'static Device, ObjectKey),
    Rest(&'static Device, u64),
}

impl Content {
    fn missing(&self, bytes: u64) -> Missing {
        match self {
            Self::Multicast(..) => Missing::Nothing,
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

    /// Adds a charge if `bytes` are counted with it and not without it. Returns whether it did.
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
