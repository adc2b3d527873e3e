//! The reasons why a call reached the driver without the shim. A process notes those that it has met in its identity
//! record ([`crate::layout::IdentityRecord::bypasses`]). `vcuda doctor` names those that an operator should know.

/// A reason. Its number is its bit in the identity record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Bypass {
    /// A library that was opened with `RTLD_DEEPBIND` could not be bound to the hooks.
    DeepBind = 0,
    /// A second driver is loaded in another link-map namespace (`dlmopen`).
    Namespace = 1,
    /// The driver gave, for a hooked name, an address that is none of its known functions.
    UnknownAddress = 2,
    /// The driver accepted a handle whose creation the shim did not see.
    UnseenHandle = 3,
    /// The process has no limit of the kind that the call is about.
    NoLimit = 4,
    /// An argument is null, zero, unreadable or unknown to the driver, whose error is the answer.
    BadArgument = 5,
    /// No context is current, so no GPU would be charged.
    NoContext = 6,
    /// The stream is being captured: the call makes a node of a graph and runs nothing.
    Capturing = 7,
    /// The call takes nothing that the tenant pays for: memory of the host, an imported pool, a context that exists.
    Uncharged = 8,
}

impl Bypass {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::DeepBind,
        Self::Namespace,
        Self::UnknownAddress,
        Self::UnseenHandle,
        Self::NoLimit,
        Self::BadArgument,
        Self::NoContext,
        Self::Capturing,
        Self::Uncharged,
    ];

    /// The reason as the log and `vcuda doctor` say it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::DeepBind => "a library opened with RTLD_DEEPBIND calls the driver directly",
            Self::Namespace => "a second driver is loaded, in a namespace of dlmopen",
            Self::UnknownAddress => "cuGetProcAddress gave an unknown address for a hooked name",
            Self::UnseenHandle => "the driver accepted a handle that the shim never saw made",
            Self::NoLimit => "no limit applies to the call",
            Self::BadArgument => "an argument is one that the driver judges",
            Self::NoContext => "no context is current",
            Self::Capturing => "the stream is being captured",
            Self::Uncharged => "the call takes nothing that is charged",
        }
    }

    /// Whether the process may use the GPU past the shim. For all other reasons the driver's answer is the right one.
    pub const fn is_past_the_shim(self) -> bool {
        matches!(self, Self::DeepBind | Self::Namespace | Self::UnknownAddress | Self::UnseenHandle)
    }

    /// Returns this reason as an error if `condition` holds: `Bypass::BadArgument.when(place.is_null())?`.
    ///
    /// # Errors
    /// The reason itself.
    #[inline]
    pub const fn when(self, condition: bool) -> Result<(), Self> {
        if condition { Err(self) } else { Ok(()) }
    }

    /// The reason's bit in a word of bypasses.
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// The reasons whose bits are set in `word`. Unknown bits are ignored: the word is a tenant's.
    pub fn of_word(word: u64) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |reason| word & reason.bit() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_each_reason_that_was_put_in() {
        let all = Bypass::ALL.iter().fold(0, |word, reason| word | reason.bit());
        assert_eq!(all, (1 << Bypass::ALL.len()) - 1, "each has a bit of its own");
        assert!(Bypass::of_word(u64::MAX).eq(Bypass::ALL));
        let two = Bypass::Namespace.bit() | Bypass::Capturing.bit();
        assert!(Bypass::of_word(two).eq([Bypass::Namespace, Bypass::Capturing]));
        assert_eq!(Bypass::of_word(0).count(), 0);
    }
}
