//! The macros that hand on prototypes, used as another crate uses them.
#![allow(non_snake_case, reason = "C names")]

use vcuda_driver_api::{cuda, prelude::*, signature};

/// Defines the function with a fixed answer.
macro_rules! answering {
    ({ $answer:expr } $name:ident ($($argument:ident : $type:ty),* $(,)?) -> $result:ty) => {
        extern "C" fn $name($(_: $type),*) -> $result { $answer }
    };
}

signature!(cuMemAlloc_v2, answering! { Err(CUerror::OUT_OF_MEMORY) });
signature!(cuLaunchKernel_ptsz, answering! { Ok(()) });

/// Counts the prototypes that it is given.
macro_rules! count {
    ({ $count:ident } $($name:ident $arguments:tt -> $result:ident;)*) => {
        const $count: usize = [$(stringify!($name)),*].len();
    };
}

vcuda_driver_api::cuda_functions!(count! { CUDA });

#[test]
fn a_signature_makes_the_c_function() {
    let pointer: cuda::fn_types::cuMemAlloc_v2 = cuMemAlloc_v2;
    // The C side sees the number.
    let status: extern "C" fn(*mut CUdeviceptr, usize) -> CUresult = cuMemAlloc_v2;
    assert_eq!(status(std::ptr::null_mut(), 1).code(), 2);
    assert_eq!(pointer as usize, cuMemAlloc_v2 as *const () as usize);
    let _: cuda::fn_types::cuLaunchKernel_ptsz = cuLaunchKernel_ptsz;
}

#[test]
fn the_list_comes_whole() {
    assert_eq!(CUDA, cuda::TYPED.len());
}
