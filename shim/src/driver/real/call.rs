//! The shim's own calls of the driver, as functions of the driver's names and prototypes. Two lists make them: `own.rs` beside
//! this file, and `hooks/own.rs`. Each says by a macro `slot!` where the address of a function is.

/// One function, with what is to live while it is called.
macro_rules! own_call {
    ({ $before:expr } $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        /// The driver's function of this name.
        ///
        /// # Safety
        /// As the driver documents.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and prototype")]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            let slot = slot!($name, $ret);
            let _during = $before;
            $crate::driver::real::call_through!(slot, ($($arg: $ty),*) -> $ret)
        }
    };
}

/// Functions that are called in relaxed capture mode, so that they break no capture.
macro_rules! relaxed {
    ($($name:ident)*) => {
        $(signature!($name, own_call! { $crate::driver::Relaxed::enter() });)*
    };
}

/// Functions that are called in the thread's own mode. Each list says why that is harmless.
macro_rules! as_it_is {
    ($($name:ident)*) => {
        $(signature!($name, own_call! { () });)*
    };
}

pub(crate) use {as_it_is, own_call, relaxed};
