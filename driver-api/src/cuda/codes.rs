//! Values of the interface's enumerations and flags.
//!
//! Each is a number of 32 bits with named constants, never a Rust `enum`: callers and drivers pass values that are
//! newer than this list.

pub(super) mod device;
pub(super) mod execution;
pub(super) mod graph;
pub(super) mod memory;

/// Makes a number type with constants; the literal is the prefix that the C names have.
macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident $prefix:literal { $($item:ident = $value:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u32);

        impl $name {
            $(
                #[doc = concat!("`", $prefix, stringify!($item), "`.")]
                pub const $item: Self = Self($value);
            )*
        }
    )*};
}
use codes;
