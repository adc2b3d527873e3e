//! Look-ups of the driver's functions by the application and the way to the hooks: `dlsym`, `dlvsym`, and `dlopen` with
//! `RTLD_DEEPBIND`.

mod deepbind;
pub(crate) mod dlsym;
mod injection;
mod libc_function;
