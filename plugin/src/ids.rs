//! Device IDs, the units that kubelet counts. An ID is a share, a chunk or a percent; it never names a GPU.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A share of one GPU.
    Gpu,
    /// A chunk of memory.
    Memory,
    /// A percent of a GPU's time.
    Cores,
    /// A chunk of memory for a suspendable container, which takes turns in it with others.
    SuspendableMemory,
}

impl Kind {
    /// All four. A plugin without a name for the last has three resources.
    pub(crate) const ALL: [Kind; 4] = [Kind::Gpu, Kind::Memory, Kind::Cores, Kind::SuspendableMemory];

    /// The element of this kind in an array in the order of [`Kind::ALL`].
    pub(crate) fn select<T>(self, [gpu, memory, cores, suspendable]: &[T; 4]) -> &T {
        match self {
            Self::Gpu => gpu,
            Self::Memory => memory,
            Self::Cores => cores,
            Self::SuspendableMemory => suspendable,
        }
    }

    /// Mutable form of [`Kind::select`].
    pub(crate) fn select_mut<T>(self, [gpu, memory, cores, suspendable]: &mut [T; 4]) -> &mut T {
        match self {
            Self::Gpu => gpu,
            Self::Memory => memory,
            Self::Cores => cores,
            Self::SuspendableMemory => suspendable,
        }
    }

    /// Word in the names of sockets and, after the domain, of resources.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Gpu => "gpu",
            Kind::Memory => "memory",
            Kind::Cores => "cores",
            Kind::SuspendableMemory => "suspendable-memory",
        }
    }

    /// Letter before the number in an ID.
    fn letter(self) -> char {
        match self {
            Kind::Gpu => 's',
            Kind::Memory => 'm',
            Kind::Cores => 'c',
            Kind::SuspendableMemory => 't',
        }
    }

    /// The ID with this number.
    pub(crate) fn id(self, number: u32) -> String {
        format!("{}-{number}", self.letter())
    }

    /// The number in an ID of this kind; `None` if the plugin has no such ID.
    pub(crate) fn number(self, id: &str) -> Option<u32> {
        let digits = id.strip_prefix(self.letter())?.strip_prefix('-')?;
        let number: u32 = digits.parse().ok()?;
        // "s-+7" and "s-007" are other texts, which the plugin never lists.
        (self.id(number) == id).then_some(number)
    }
}

/// Numbers of IDs of one kind.
pub(crate) type Ids = BTreeSet<u32>;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum IdError {
    #[error("{0:?} is no device of this resource")]
    Foreign(String),
    #[error("{0:?} is named twice")]
    Repeated(String),
    #[error("no device is named")]
    None,
}

/// The numbers in `ids`.
pub(crate) fn parse(kind: Kind, ids: &[String]) -> Result<Ids, IdError> {
    let mut numbers = Ids::new();
    for id in ids {
        let short = || id.chars().take(64).collect();
        let number = kind.number(id).ok_or_else(|| IdError::Foreign(short()))?;
        if !numbers.insert(number) {
            return Err(IdError::Repeated(short()));
        }
    }
    if numbers.is_empty() {
        return Err(IdError::None);
    }
    Ok(numbers)
}

/// Name of a set of shares, 16 hexadecimal digits: the key of its grant, the name of its CDI device, and part of its file's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(String);

impl Slot {
    /// The slot of these shares: the first 64 bits of the SHA-256 of their sorted IDs.
    pub(crate) fn from_shares(shares: &Ids) -> Self {
        let ids: String = shares.iter().map(|number| Kind::Gpu.id(*number) + "\n").collect();
        Self(digest(&ids, 8))
    }

    /// The slot of this name; `None` if the text is no slot's name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (name.len() == 16 && name.bytes().all(is_hex)).then(|| Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first `bytes` bytes of a text's SHA-256, in hexadecimal.
pub(crate) fn digest(text: &str, bytes: usize) -> String {
    Sha256::digest(text).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn only_what_was_given_out_is_an_id() {
        assert_eq!(parse(Kind::Gpu, &texts(&["s-0", "s-17"])), Ok(Ids::from([0, 17])));
        for foreign in ["s-", "s-007", "s-+7", "m-1", "s-4294967296", "", "GPU-1", "s-1 "] {
            let error = parse(Kind::Gpu, &texts(&[foreign])).unwrap_err();
            assert_eq!(error, IdError::Foreign(foreign.to_owned()));
        }
        let twice = parse(Kind::Memory, &texts(&["m-1", "m-2", "m-1"])).unwrap_err();
        assert_eq!(twice, IdError::Repeated("m-1".to_owned()));
        assert_eq!(parse(Kind::Cores, &[]), Err(IdError::None));
    }

    #[test]
    fn a_slot_is_16_digits_of_the_set() {
        let slot = Slot::from_shares(&Ids::from([3]));
        // echo s-3 | sha256sum
        assert_eq!(slot.as_str(), "8825099ea4904796");
        assert_eq!(Slot::named(slot.as_str()), Some(slot));
        assert_eq!(Slot::named("8825099EA4904796"), None);
        assert_ne!(Slot::from_shares(&Ids::from([1, 23])), Slot::from_shares(&Ids::from([12, 3])));
    }
}
