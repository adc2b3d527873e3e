//! Device IDs: the units that kubelet counts. An ID names a share, a chunk or a percent, and never a GPU.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// Kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A share of one GPU.
    Gpu,
    /// A chunk of memory.
    Memory,
    /// One percent of a GPU's time.
    Cores,
}

impl Kind {
    /// All three.
    pub const ALL: [Kind; 3] = [Kind::Gpu, Kind::Memory, Kind::Cores];

    /// The item of this kind among three, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn of<T>(self, [gpu, memory, cores]: &[T; 3]) -> &T {
        match self {
            Self::Gpu => gpu,
            Self::Memory => memory,
            Self::Cores => cores,
        }
    }

    /// As [`Kind::of`], to be changed.
    pub fn of_mut<T>(self, [gpu, memory, cores]: &mut [T; 3]) -> &mut T {
        match self {
            Self::Gpu => gpu,
            Self::Memory => memory,
            Self::Cores => cores,
        }
    }

    /// As it stands in names of sockets, and after the domain in names of resources.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Gpu => "gpu",
            Kind::Memory => "memory",
            Kind::Cores => "cores",
        }
    }

    /// Before the number in an ID.
    fn letter(self) -> char {
        match self {
            Kind::Gpu => 's',
            Kind::Memory => 'm',
            Kind::Cores => 'c',
        }
    }

    /// The ID with this number.
    #[must_use]
    pub fn id(self, number: u32) -> String {
        format!("{}-{number}", self.letter())
    }

    /// The number in an ID of this kind. None: it is not one of ours.
    #[must_use]
    pub fn number(self, id: &str) -> Option<u32> {
        let digits = id.strip_prefix(self.letter())?.strip_prefix('-')?;
        let number: u32 = digits.parse().ok()?;
        // "s-+7" and "s-007" are other IDs, which the plugin never gave out.
        (self.id(number) == id).then_some(number)
    }
}

/// Numbers of IDs of one kind.
pub type Ids = BTreeSet<u32>;

/// These are not IDs of ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdError {
    /// One has another form.
    #[error("{0:?} is no device of this resource")]
    Foreign(String),
    /// One is named twice.
    #[error("{0:?} is named twice")]
    Repeated(String),
    /// There is none.
    #[error("no device is named")]
    None,
}

/// The numbers in `ids`, each once, at least one.
///
/// # Errors
/// See [`IdError`].
pub fn parse(kind: Kind, ids: &[String]) -> Result<Ids, IdError> {
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

/// A set of shares by name: key of its grant, name of its CDI device, part of its file's name. 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(String);

impl Slot {
    /// That of these shares: the first 64 bits of the SHA-256 of their sorted IDs.
    #[must_use]
    pub fn of(shares: &Ids) -> Self {
        let mut hash = Sha256::new();
        for number in shares {
            hash.update(Kind::Gpu.id(*number));
            hash.update("\n");
        }
        let digest = hash.finalize();
        Self(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    /// The slot of this name, if it can be one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (name.len() == 16 && name.bytes().all(is_hex)).then(|| Self(name.to_owned()))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Numbers as text, in ranges: `0-15,17`.
#[must_use]
pub fn ranges(ids: &Ids) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => parts.push((*id, *id)),
        }
    }
    let texts: Vec<String> = parts
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

/// IDs in a text of [`ranges`]. None: it was not that.
#[must_use]
pub fn of_ranges(text: &str) -> Option<Ids> {
    /// More than a node ever has.
    const MOST: u32 = 1 << 20;
    let mut ids = Ids::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let slot = Slot::of(&Ids::from([3]));
        // echo s-3 | sha256sum
        assert_eq!(slot.as_str(), "8825099ea4904796");
        assert_eq!(Slot::named(slot.as_str()), Some(slot));
        assert_eq!(Slot::named("8825099EA4904796"), None);
        assert_ne!(Slot::of(&Ids::from([1, 23])), Slot::of(&Ids::from([12, 3])));
    }

    proptest! {
        #[test]
        fn ranges_are_read_as_they_were_written(ids in prop::collection::btree_set(0_u32..300, 0..60)) {
            prop_assert_eq!(of_ranges(&ranges(&ids)), Some(ids));
        }

        #[test]
        fn rubbish_is_no_ranges(text in "[0-9,x-]{0,12}") {
            if let Some(ids) = of_ranges(&text) {
                prop_assert_eq!(of_ranges(&ranges(&ids)), Some(ids));
            }
        }
    }
}
