//! NVML: handles, structures, values, and the list of prototypes.
#![allow(non_camel_case_types, non_snake_case, reason = "NVML's spelling")]

/// Hands the prototype of one NVML function to a macro: see the documentation of the crate.
#[macro_export]
macro_rules! nvml_signature {
    ($name:ident, $($rest:tt)*) => {
        compile_error! { concat!("driver-api has no prototype of ", stringify!($name)) }
    };
}
