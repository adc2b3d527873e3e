//! Structures of the interface, with the layout of CUDA 13.5 (equal to 12.4 where that has them).
//!
//! Fields have CUDA's names. An anonymous union becomes a field `value`; where its members are one number or one
//! handle under several names it is that member, and the structure's docs say so.

pub(super) mod device;
pub(super) mod execution;
pub(super) mod graph;
pub(super) mod memory;

/// Makes C structures and unions; the number is the size in bytes that the C compiler gives.
macro_rules! structs {
    ($($(#[$meta:meta])* $kind:ident $name:ident [$size:literal] { $($field:ident : $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "fields mean what the CUDA Driver API says under the same names")]
        pub $kind $name { $(pub $field: $ty),* }

        $crate::cuda::structs::debug! { $kind $name $($field)* }

        const _: () = assert!(size_of::<$name>() == $size, "the size that the C compiler gives");
    )*};
}
use structs;

/// `Debug` of a structure shows its fields, of a union its name: which member counts is not in it.
macro_rules! debug {
    (struct $name:ident $($field:ident)*) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))*.finish()
            }
        }
    };
    (union $name:ident $($field:ident)*) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}
use debug;
