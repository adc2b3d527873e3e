//! What most exported functions use.

pub(crate) use vcuda_driver_api::prelude::*;

pub(crate) use crate::base::ffi::{get, get_array, is_possible, put, put_at, put_if_wanted, put_text, text};
pub(crate) use crate::object::current::current;
pub(crate) use crate::object::process::{device, process};
pub(crate) use crate::semantics::stream::{Null, resolve};
