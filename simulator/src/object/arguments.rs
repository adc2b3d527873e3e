//! Kernel arguments: the two forms of launches, and copies in graph nodes.
//!
//! CUDA Driver API, `cuLaunchKernel`: an array of pointers, one per parameter, or (`extra`) one packed buffer.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::get;
use crate::object::module::Parameter;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    /// No arguments, for kernels without parameters.
    Nothing,
    /// Pointers, one per parameter.
    Pointers(*mut *mut c_void),
    /// All arguments in one buffer, with its size (bytes).
    Packed(*const u8, usize),
}

impl Given {
    /// Reads the two argument lists of a launch. Error: `INVALID_VALUE` if both forms are given, or for an unknown
    /// entry of `extra` or an incomplete one.
    pub(crate) fn read(kernel_params: *mut *mut c_void, extra: *mut *mut c_void) -> Result<Given, CUerror> {
        match (kernel_params.is_null(), extra.is_null()) {
            (false, false) => Err(CUerror::INVALID_VALUE),
            (false, true) => Ok(Given::Pointers(kernel_params)),
            (true, true) => Ok(Given::Nothing),
            (true, false) => Given::read_extra(extra),
        }
    }

    /// "The list must be terminated with either NULL or CU_LAUNCH_PARAM_END", both 0.
    fn read_extra(extra: *mut *mut c_void) -> Result<Given, CUerror> {
        let (mut buffer, mut size) = (None, None);
        let mut entry = extra;
        loop {
            let name = get(entry.cast_const())? as usize;
            if name == CU_LAUNCH_PARAM_END {
                break;
            }
            let place = entry.wrapping_add(1);
            let value = get(place.cast_const())?;
            match name {
                CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(value.cast::<u8>().cast_const()),
                CU_LAUNCH_PARAM_BUFFER_SIZE => size = Some(get(value.cast::<usize>().cast_const())?),
                _ => return Err(CUerror::INVALID_VALUE),
            }
            entry = entry.wrapping_add(2);
        }
        match (buffer, size) {
            (Some(buffer), Some(size)) => Ok(Given::Packed(buffer, size)),
            (None, None) => Ok(Given::Nothing),
            _ => Err(CUerror::INVALID_VALUE),
        }
    }

    /// The first argument as a 64-bit number. Error: `INVALID_VALUE` without arguments.
    #[inline]
    pub(crate) fn first(self) -> Result<u64, CUerror> {
        match self {
            Given::Nothing => Err(CUerror::INVALID_VALUE),
            Given::Pointers(pointers) => get(get(pointers.cast_const())?.cast::<u64>().cast_const()),
            Given::Packed(_, size) if size < size_of::<u64>() => Err(CUerror::INVALID_VALUE),
            Given::Packed(buffer, _) => get(buffer.cast::<u64>()),
        }
    }

    /// Checks that there are enough arguments for a kernel's parameters.
    #[inline]
    pub(crate) fn check(self, parameters: &[Parameter]) -> CUresult {
        let needed = parameters.last().map_or(0, |last| last.offset + last.size);
        match self {
            Given::Nothing if needed > 0 => Err(CUerror::INVALID_VALUE),
            Given::Packed(_, size) if size < needed => Err(CUerror::INVALID_VALUE),
            _ => Ok(()),
        }
    }

    /// Copies the arguments for a graph node. Error: `INVALID_VALUE` for a null pointer among the arguments.
    pub(crate) fn copy(self, parameters: &[Parameter]) -> Result<Arguments, CUerror> {
        let mut bytes = Vec::new();
        match self {
            Given::Nothing => {}
            Given::Pointers(pointers) => {
                bytes.resize(parameters.last().map_or(0, |last| last.offset + last.size), 0);
                for (index, parameter) in parameters.iter().enumerate() {
                    let source = get(pointers.wrapping_add(index).cast_const())?.cast::<u8>().cast_const();
                    let range = parameter.offset..parameter.offset + parameter.size;
                    let target = bytes.get_mut(range).ok_or(CUerror::INVALID_VALUE)?;
                    fill(target, source)?;
                }
            }
            Given::Packed(buffer, size) => {
                bytes.resize(size, 0);
                fill(&mut bytes, buffer)?;
            }
        }
        Ok(Arguments::new(bytes, parameters, matches!(self, Given::Packed(..))))
    }
}

fn fill(target: &mut [u8], source: *const u8) -> CUresult {
    if target.is_empty() {
        return Ok(());
    }
    if !crate::base::ffi::is_possible(source) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the API's contract is that each argument points to as many bytes as the kernel's parameter has
    // (or the buffer to as many as its size says); the target is ours and does not overlap.
    unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
    Ok(())
}

/// A copy of a launch's arguments, with the arrays that `cuGraphKernelNodeGetParams` returns ("owned by the node").
#[derive(Debug)]
pub(crate) struct Arguments {
    bytes: Box<[u8]>,
    /// Addresses of the arguments in `bytes`, or an `extra` list and then the size; empty without arguments.
    list: Box<[usize]>,
    is_packed: bool,
}

impl Arguments {
    fn new(bytes: Vec<u8>, parameters: &[Parameter], is_packed: bool) -> Arguments {
        let bytes = bytes.into_boxed_slice();
        let start = bytes.as_ptr() as usize;
        let list = if is_packed {
            let (buffer, size) = (CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE);
            vec![buffer, start, size, 0, CU_LAUNCH_PARAM_END, bytes.len()]
        } else if bytes.is_empty() {
            Vec::new()
        } else {
            parameters.iter().map(|parameter| start + parameter.offset).collect()
        };
        let mut list = list.into_boxed_slice();
        if is_packed {
            list[3] = (&raw const list[5]) as usize;
        }
        Arguments { bytes, list, is_packed }
    }

    /// The first argument as a 64-bit number; 0 without arguments.
    pub(crate) fn first(&self) -> u64 {
        let bytes = self.bytes.first_chunk::<8>().copied().unwrap_or_default();
        u64::from_ne_bytes(bytes)
    }

    /// `kernelParams` and `extra` for a caller.
    pub(crate) fn lists(&self) -> (*mut *mut c_void, *mut *mut c_void) {
        let null = core::ptr::null_mut();
        let list = if self.list.is_empty() { null } else { self.list.as_ptr().cast_mut().cast() };
        if self.is_packed { (null, list) } else { (list, null) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> [Parameter; 2] {
        [Parameter { offset: 0, size: 8 }, Parameter { offset: 8, size: 4 }]
    }

    #[test]
    fn both_forms_give_the_same_copy() {
        let (mut first, mut second) = (0x1122_3344_5566_7788u64, 9u32);
        let mut pointers: [*mut c_void; 2] = [(&raw mut first).cast(), (&raw mut second).cast()];
        let given = Given::read(pointers.as_mut_ptr(), core::ptr::null_mut()).expect("one form");
        assert_eq!(given.first(), Ok(first));
        let copied = given.copy(&parameters()).expect("readable");

        let mut packed = [0u8; 12];
        packed[..8].copy_from_slice(&first.to_ne_bytes());
        packed[8..].copy_from_slice(&second.to_ne_bytes());
        let mut size = packed.len();
        let mut extra: [*mut c_void; 5] = [
            core::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
            packed.as_mut_ptr().cast(),
            core::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
            (&raw mut size).cast(),
            core::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
        ];
        let given = Given::read(core::ptr::null_mut(), extra.as_mut_ptr()).expect("one form");
        assert_eq!(given.check(&parameters()), Ok(()));
        let from_packed = given.copy(&parameters()).expect("readable");
        assert_eq!(copied.bytes, from_packed.bytes);
        assert_eq!(copied.first(), first);

        let (list, none) = copied.lists();
        assert!(none.is_null());
        let again = Given::read(list, none).expect("one form").copy(&parameters()).expect("readable");
        assert_eq!(again.bytes, copied.bytes);
        let (none, list) = from_packed.lists();
        assert_eq!(Given::read(none, list).and_then(Given::first), Ok(first));
    }

    #[test]
    fn wrong_forms_are_refused() {
        let mut pointers: [*mut c_void; 1] = [core::ptr::null_mut()];
        let both = Given::read(pointers.as_mut_ptr(), pointers.as_mut_ptr());
        assert_eq!(both.err(), Some(CUerror::INVALID_VALUE));
        assert_eq!(Given::Nothing.check(&parameters()), Err(CUerror::INVALID_VALUE));
        assert_eq!(Given::Nothing.check(&[]), Ok(()));
        let byte = 0u8;
        assert_eq!(Given::Packed(&raw const byte, 1).check(&parameters()), Err(CUerror::INVALID_VALUE));
        assert_eq!(Given::Pointers(pointers.as_mut_ptr()).first(), Err(CUerror::INVALID_VALUE));
        let mut unknown: [*mut c_void; 2] = [core::ptr::without_provenance_mut(99), core::ptr::null_mut()];
        let given = Given::read(core::ptr::null_mut(), unknown.as_mut_ptr());
        assert_eq!(given.err(), Some(CUerror::INVALID_VALUE));
    }
}
