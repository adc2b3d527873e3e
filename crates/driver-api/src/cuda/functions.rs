//! The list of typed prototypes, one file per subject, and the macros that hand it on.
//!
//! A line is `name, same_prototype_under_another_name: (argument: type, ...);`. All functions of the driver API return
//! [`CUresult`](crate::CUresult). What is exported but not listed here is known by name only (`names`).

#[macro_use]
mod device;
#[macro_use]
mod memory;
#[macro_use]
mod stream;
#[macro_use]
mod graph;
#[macro_use]
mod interop;

/// Makes the crate's public names and macros from the list. `$d` is a dollar sign, for the macros made here.
macro_rules! define {
    ([] $d:tt $($($name:ident),+: $arguments:tt;)*) => {
        /// The names of all typed functions of the driver API, in the order of the list.
        pub const TYPED: &[&str] = &[$($(stringify!($name)),+),*];

        /// The function pointer type of every typed function, under its name.
        pub mod fn_types {
            use super::super::*;
            use crate::result::CUresult;
            use std::ffi::{c_char, c_int, c_uint, c_void};

            $($(function_type! { CUresult $name $arguments })+)*
        }

        /// Hands the prototype of one function to a macro; see the documentation of the crate.
        #[macro_export]
        macro_rules! signature {
            $($(
                ($name, $d callback:ident ! { $d($d extra:tt)* }) => {
                    $d callback! { { $d($d extra)* } $name $arguments -> CUresult }
                };
            )+)*
            ($d($d nvml:tt)*) => { $crate::nvml_signature! { $d($d nvml)* } };
        }

        /// Hands every prototype of the driver API to a macro; see the documentation of the crate.
        #[macro_export]
        macro_rules! cuda_functions {
            ($d callback:ident ! { $d($d extra:tt)* }) => {
                $d callback! { { $d($d extra)* } $($($name $arguments -> CUresult;)+)* }
            };
        }
    };
}

device_list! { [memory_list stream_list graph_list interop_list define] $ }
