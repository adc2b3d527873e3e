//! Ways to the driver that pass the shim. What cannot be led here is at least known: said once in the log, and counted.
//! The memory that is taken by such a way is charged all the same, once measured, as overhead.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::fs;

use crate::driver::elf;
use crate::driver::real::Library;
use crate::runtime::shim::Shim;

/// A way past the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bypass {
    /// A library opened with `RTLD_DEEPBIND` that could not be bound to the hooks.
    DeepBind,
    /// Another link-map namespace (`dlmopen`). Only a way once a driver is loaded there.
    Namespace,
    /// An address for a hooked name that is none of the driver's known functions.
    Address,
}

impl Bypass {
    const ALL: [Self; 3] = [Self::DeepBind, Self::Namespace, Self::Address];

    fn words(self) -> &'static str {
        match self {
            Self::DeepBind => "a library opened with RTLD_DEEPBIND calls the driver directly",
            Self::Namespace => "a second driver is loaded, in a namespace of dlmopen",
            Self::Address => "cuGetProcAddress gave an unknown address for a hooked name",
        }
    }

    /// Notes that the way was opened. Does nothing but count: it may be called inside the loader.
    pub(crate) fn note(self) {
        if let Some(seen) = SEEN.get(self as usize) {
            seen.fetch_add(1, Ordering::Relaxed);
            NEWS.store(true, Ordering::Release);
        }
    }
}

static SEEN: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
static TOLD: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
static NEWS: AtomicBool = AtomicBool::new(false);

/// Says what was noted since the last time.
#[inline]
pub(crate) fn tell(shim: &'static Shim) {
    if NEWS.load(Ordering::Acquire) {
        tell_news(shim);
    }
}

#[cold]
fn tell_news(shim: &'static Shim) {
    NEWS.store(false, Ordering::Relaxed);
    let mut known = 0;
    for ((way, seen), told) in Bypass::ALL.into_iter().zip(&SEEN).zip(&TOLD) {
        let seen = seen.load(Ordering::Relaxed);
        if seen == 0 {
            continue;
        }
        if way == Bypass::Namespace && !told.load(Ordering::Relaxed) && !is_driver_loaded_twice() {
            // It may yet be: looked for again at the next look.
            NEWS.store(true, Ordering::Relaxed);
            continue;
        }
        known += u64::from(seen);
        if !told.swap(true, Ordering::Relaxed) {
            shim.log(format_args!("{}: past the shim", way.words()));
        }
    }
    if let Some(slot) = shim.slot().filter(|_| known > 0) {
        slot.tell_bypasses(known);
    }
}

/// The private tables of the driver that were asked for, by a digest of their id: each is said once. NVIDIA's own
/// libraries fetch some at every start, so they are no sign of a way past the shim.
static TABLES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Whether this table was not asked for before, as far as is remembered.
pub(crate) fn is_new_table(id: &[u8; 16]) -> bool {
    let [first, second] = [0, 8].map(|at| {
        id.get(at..)
            .and_then(<[u8]>::first_chunk)
            .map_or(0, |half| u64::from_ne_bytes(*half))
    });
    let key = first
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(second)
        .max(1);
    for place in &TABLES {
        match place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(there) if there == key => return false,
            Err(_) => {}
        }
    }
    false
}

/// Whether the driver's file is mapped from its beginning more than once: each namespace has a copy of its own.
fn is_driver_loaded_twice() -> bool {
    let soname = Library::Cuda.soname();
    let Some(base) = elf::find(|object| object.is(soname).then(|| object.base())) else {
        return false;
    };
    let Ok(maps) = fs::read(vcuda_region::process::own_file("maps")) else {
        return false;
    };
    let maps = String::from_utf8_lossy(&maps);
    let beginnings = || maps.lines().filter_map(Beginning::of);
    let driver = beginnings().find(|one| one.address == base);
    driver.is_some_and(|driver| beginnings().filter(|one| one.file == driver.file).count() > 1)
}

/// Where a file's beginning is mapped.
struct Beginning<'a> {
    address: usize,
    /// Device and inode.
    file: (&'a str, &'a str),
}

impl<'a> Beginning<'a> {
    /// Of a line of `/proc/PID/maps`: range, permissions, offset, device, inode (proc(5)).
    fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, _) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let file = (words.next()?, words.next()?);
        let is_beginning = offset.bytes().all(|digit| digit == b'0') && file.1 != "0";
        is_beginning.then_some(Self {
            address: usize::from_str_radix(start, 16).ok()?,
            file,
        })
    }
}
