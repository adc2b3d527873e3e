//! The macros with which both interfaces declare their types and prototypes.

/// Opaque handles: addresses that only the driver dereferences. As numbers they are `Send`, comparable and hashable.
macro_rules! handles {
    ($($(#[$meta:meta])* $name:ident)*) => {$(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub usize);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(0);

            /// Whether this is the null handle.
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }
        }
    )*};
}

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

/// Makes C structures and unions; the number is the size in bytes that the C compiler gives.
macro_rules! structs {
    ($($(#[$meta:meta])* $kind:ident $name:ident [$size:literal] { $($field:ident : $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "fields mean what the CUDA Driver API and NVML pages say under the same names")]
        pub $kind $name { $(pub $field: $ty),* }

        debug! { $kind $name $($field)* }

        const _: () = assert!(size_of::<$name>() == $size, "the size that the C compiler gives");
    )*};
}

/// Implements `Debug`. A union shows its name only, as it does not tell which member is valid.
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

/// Makes `file_list!`. That macro appends its lines to those that it is given, and hands all to the next macro named.
macro_rules! list {
    ($list:ident $d:tt $($lines:tt)*) => {
        macro_rules! $list {
            ([$d next:ident $d($d rest:ident)*] $d($d before:tt)*) => {
                $d next! { [$d($d rest)*] $d($d before)* $($lines)* }
            };
        }
    };
}

/// A function pointer type, under the name of its function.
macro_rules! function_type {
    ($result:ident $name:ident ($($argument:ident : $type:ty),* $(,)?)) => {
        #[doc = concat!("A pointer to `", stringify!($name), "`.")]
        pub type $name = unsafe extern "C" fn($($argument: $type),*) -> $result;
    };
}
