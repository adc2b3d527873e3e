//! NVML's protocol for lists: the caller says how much room there is, and is told how much is needed.

use vcuda_driver_api::prelude::*;

use crate::driver::saved_answer::peek;

/// Whether the caller's pointers can be used. If not, NVML's answer is passed on.
pub(super) fn is_usable<T: Copy>(count: *const c_uint, array: *const T) -> bool {
    match peek(count) {
        None => false,
        Some(0) => true,
        Some(_) => array.is_null() || peek(array).is_some(),
    }
}

/// Writes the entries if there is room for all; `count` says how many there are. The pointers are [`is_usable`].
///
/// # Errors
/// `NVML_ERROR_INSUFFICIENT_SIZE`, `NVML_ERROR_INVALID_ARGUMENT` without an array.
pub(super) fn put_all<T>(count: *mut c_uint, array: *mut T, entries: &[T]) -> nvmlReturn_t
where
    T: Copy,
{
    // SAFETY: readable, as the caller of this has seen.
    let room = unsafe { count.read_unaligned() };
    let needed = c_uint::try_from(entries.len()).unwrap_or(c_uint::MAX);
    // SAFETY: NVML would write here too.
    unsafe { count.write_unaligned(needed) };
    if room < needed {
        return Err(NvmlError::INSUFFICIENT_SIZE);
    }
    if array.is_null() && needed > 0 {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    for (at, entry) in entries.iter().enumerate() {
        // SAFETY: the caller says that there is room for `room` entries, of which this is one.
        let place = unsafe { array.add(at) };
        // SAFETY: as above.
        unsafe { place.write_unaligned(*entry) };
    }
    Ok(())
}

/// All that NVML lists: calls `ask` with room that grows until it suffices.
///
/// # Errors
/// NVML's own.
pub(super) fn get_all<T: Copy>(
    empty: T,
    mut ask: impl FnMut(*mut c_uint, *mut T) -> nvmlReturn_t,
) -> Result<Vec<T>, NvmlError> {
    let mut entries = vec![empty; 64];
    loop {
        let mut count = c_uint::try_from(entries.len()).unwrap_or(0);
        match ask(&raw mut count, entries.as_mut_ptr()) {
            Ok(()) => {
                entries.truncate(count as usize);
                return Ok(entries);
            }
            Err(NvmlError::INSUFFICIENT_SIZE) if entries.len() < 65_536 => {
                entries.resize((count as usize).clamp(entries.len(), 32_768) * 2, empty);
            }
            Err(why) => return Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_whole_or_its_length_told() {
        let (mut count, mut array) = (1, [0_u64; 3]);
        assert!(is_usable(&raw const count, array.as_ptr()));
        assert_eq!(put_all(&raw mut count, array.as_mut_ptr(), &[7, 8]), Err(NvmlError::INSUFFICIENT_SIZE));
        assert_eq!((count, array), (2, [0; 3]));
        assert_eq!(put_all(&raw mut count, array.as_mut_ptr(), &[7, 8]), Ok(()));
        assert_eq!((count, array), (2, [7, 8, 0]));
        count = 0;
        assert_eq!(put_all(&raw mut count, core::ptr::null_mut::<u64>(), &[]), Ok(()));
        assert!(!is_usable(core::ptr::null(), array.as_ptr()));
        count = 1;
        assert!(!is_usable(&raw const count, 0x100 as *const u64));
    }

    #[test]
    fn room_grows_until_it_suffices() {
        let all = get_all(0_u32, |count, array| {
            // SAFETY: `get_all`'s own.
            let room = unsafe { count.read() };
            // SAFETY: as above.
            unsafe { count.write(100) };
            if room < 100 {
                return Err(NvmlError::INSUFFICIENT_SIZE);
            }
            // SAFETY: there is room for one.
            unsafe { array.write(7) };
            Ok(())
        });
        assert_eq!(all.map(|all| (all.len(), all.first().copied())), Ok((100, Some(7))));
        let refused = get_all(0_u32, |_, _| Err(NvmlError::NOT_SUPPORTED));
        assert_eq!(refused, Err(NvmlError::NOT_SUPPORTED));
    }
}
