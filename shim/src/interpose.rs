//! How the application's look-ups of the driver's functions lead to the hooks: `dlsym`, `dlvsym`, and `dlopen` with
//! `RTLD_DEEPBIND`.

mod deepbind;
pub(crate) mod dlsym;
