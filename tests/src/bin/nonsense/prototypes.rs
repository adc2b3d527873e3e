//! The driver's prototypes as lists of argument types, with a function to call each. They are generated from driver-api's
//! list.

use std::ffi::c_void;
use std::marker::PhantomData;

use vcuda_driver_api::{cuda, nvml};

/// An argument as the prototype declares it.
#[derive(Debug)]
pub(crate) struct Argument {
    /// Name in the prototype.
    pub(crate) name: &'static str,
    /// Type as written, without spaces.
    pub(crate) type_name: &'static str,
    /// Size (bytes).
    pub(crate) size: usize,
    /// Size of the target (bytes); 0 if it is no pointer.
    pub(crate) pointee: usize,
}

impl Argument {
    /// Type of the target.
    pub(crate) fn pointee_name(&self) -> &'static str {
        let name = self.type_name;
        name.strip_prefix("*mut ").or(name.strip_prefix("*const ")).unwrap_or(name)
    }

    /// Whether the driver may write the target.
    pub(crate) fn is_written(&self) -> bool {
        self.type_name.starts_with("*mut ")
    }
}

/// A function of the driver.
#[derive(Debug)]
pub(crate) struct Prototype {
    /// Exported symbol.
    pub(crate) name: &'static str,
    /// Arguments, in order.
    pub(crate) arguments: &'static [Argument],
    /// Calls the function at an address with the arguments' bytes. Returns the status as a number.
    pub(crate) call: unsafe fn(*mut c_void, &[Vec<u8>]) -> u32,
}

/// The prototype of this name.
pub(crate) fn prototype(name: &str) -> Option<&'static Prototype> {
    CUDA.iter().chain(NVML).find(|prototype| prototype.name == name)
}

/// Size of a pointer type's target, by type.
struct Probe<T>(PhantomData<T>);

impl<T> Probe<*mut T> {
    const POINTEE: usize = size_of::<T>();
}

impl<T> Probe<*const T> {
    const POINTEE: usize = size_of::<T>();
}

/// Fallback for all other types, as an inherent constant takes precedence over a trait's.
trait NoPointer {
    const POINTEE: usize = 0;
}

impl<T> NoPointer for Probe<T> {}

/// Reads an argument's value from its bytes.
///
/// # Safety
/// The bytes are a value of `T`.
unsafe fn value<T>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: there are as many bytes as `T` has; the caller promises that they are a valid value.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

macro_rules! prototypes {
    ({ $list:ident $module:ident } $($name:ident ($($argument:ident : $type:ty),* $(,)?) -> $result:ty;)*) => {
        static $list: &[Prototype] = {
            use vcuda_driver_api::prelude::*;
            &[$(Prototype {
                name: stringify!($name),
                arguments: &[$(Argument {
                    name: stringify!($argument),
                    type_name: stringify!($type),
                    size: size_of::<$type>(),
                    pointee: <Probe<$type>>::POINTEE,
                }),*],
                call: {
                    unsafe fn call(function: *mut c_void, values: &[Vec<u8>]) -> u32 {
                        // SAFETY: the caller found the address under this function's name.
                        let function: $module::fn_types::$name = unsafe { std::mem::transmute(function) };
                        #[allow(unused_mut, unused_variables, reason = "some functions take no argument")]
                        let mut values = values.iter();
                        $(
                            // SAFETY: the caller chose the bytes for this type.
                            let $argument = unsafe { value::<$type>(values.next().unwrap()) };
                        )*
                        // SAFETY: that the driver can stand these arguments is what is being tried.
                        unsafe { function($($argument),*) }.code()
                    }
                    call
                },
            }),*]
        };
    };
}

vcuda_driver_api::cuda_functions!(prototypes! { CUDA cuda });
vcuda_driver_api::nvml_functions!(prototypes! { NVML nvml });
