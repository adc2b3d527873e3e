//! `hooks!`: one row per hooked function.
//!
//! ```text
//! hooks! {
//!     deny cuMemAlloc_v2  => memory::alloc;    // handler `alloc` of module `memory`
//!     pass cuLaunchKernel => launch::kernel unless is_kernel_paid;
//! }                                         // `gate { cuEventQuery ... }`, before these: see `hooks/gated.rs`
//! ```
//! The first word is the answer if the shim panics before the driver was called: `deny` says "out of memory", `pass`
//! calls the driver. The prototype comes from driver-api. The end of the name says what stream 0 means
//! ([`DefaultStream`](crate::driver::DefaultStream)): variants with `_ptsz` and `_ptds` share their handlers with those
//! without. A row yields
//! - the exported C function of that name (link-time symbol). It goes straight to the driver while the handler's module
//!   is `idle()`, or if the row's function behind `unless` has already done what there is to do. Else it runs the handler
//!   under the guard ([`crate::driver::guarded`]);
//! - the slot of the driver's own function of the same name, by which the application's call goes on;
//! - an entry in [`TABLE`](crate::hooks::TABLE), which serves `dlsym`, `dlvsym` and `cuGetProcAddress`.

use core::arch::asm;
use core::ffi::{CStr, c_void};

use crate::driver::real::{Library, Slot};

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    slot: Slot,
    hook: *const c_void,
}

// SAFETY: the pointer is the constant address of a function; the slot is atomic.
unsafe impl Sync for Row {}

impl Row {
    /// A hook for the function `name` of `library`.
    pub(crate) const fn new(name: &'static CStr, library: Library, hook: *const c_void) -> Self {
        Self { slot: Slot::new(name, library), hook }
    }

    /// The driver's function of this name.
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The shim's function of this name.
    #[inline]
    pub(crate) fn hook(&self) -> *mut c_void {
        self.hook.cast_mut()
    }
}

/// Properties of a module's handlers that the table needs, besides when they are idle. Each module of hooks has a
/// constant `HANDLERS`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handlers {
    /// Whether a call may give or take GPU memory, so that no figure of the driver's is compared with the ledger meanwhile
    /// ([`crate::runtime::in_flight`]). A call that waits for the GPU may last for minutes and must say `false`.
    pub(crate) may_move_memory: bool,
    /// Whether `pthread_cancel` waits until the handler has ended ([`crate::driver::cancel`]).
    pub(crate) defers_cancellation: bool,
    /// Whether a call may touch the GPU's state, and so waits while that is away ([`crate::runtime::suspend`]).
    pub(crate) passes_gate: bool,
}

impl Handlers {
    /// For calls that give or take memory.
    pub(crate) const MOVING_MEMORY: Self =
        Self { may_move_memory: true, defers_cancellation: true, passes_gate: true };
    /// For calls that do not.
    pub(crate) const MOVING_NOTHING: Self =
        Self { may_move_memory: false, defers_cancellation: true, passes_gate: true };
    /// For calls that only tell what is known.
    pub(crate) const TELLING: Self = Self { passes_gate: false, ..Self::MOVING_NOTHING };
}

/// The positions of the rows in the order of their names.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a wrong index is an error message"
)]
#[expect(clippy::cast_possible_truncation, reason = "a table of hooks has fewer than 65536 rows")]
pub(crate) const fn sorted<const N: usize>(names: &[&str; N]) -> [u16; N] {
    let mut order = [0_u16; N];
    let mut filled = 0;
    while filled < N {
        // By halves, as a comparison takes the compiler long.
        let (mut low, mut high) = (0, filled);
        while low < high {
            let middle = usize::midpoint(low, high);
            if before(names[filled], names[order[middle] as usize]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let mut at = filled;
        while at > low {
            order[at] = order[at - 1];
            at -= 1;
        }
        order[at] = filled as u16;
        filled += 1;
    }
    order
}

#[expect(clippy::indexing_slicing, reason = "below both lengths")]
const fn before(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut i = 0;
    while i < left.len() && i < right.len() {
        if left[i] != right[i] {
            return left[i] < right[i];
        }
        i += 1;
    }
    left.len() < right.len()
}

/// Makes the table from its rows, see the module.
macro_rules! hooks {
    (gate { $($gated:ident)* } $($answer:ident $name:ident => $module:ident :: $handler:ident $(unless $is_done:ident)?;)*) => {
        /// The position of each row in the table.
        #[allow(non_camel_case_types, reason = "the driver's names")]
        #[derive(Clone, Copy)]
        enum Position { $($name,)* $($gated),* }

        const NAMES: [&str; [$(stringify!($name),)* $(stringify!($gated)),*].len()] =
            [$(stringify!($name),)* $(stringify!($gated)),*];

        /// All hooks.
        pub(crate) static TABLE: [$crate::hooks::table::Row; NAMES.len()] = [
            $(vcuda_driver_api::signature!($name, entry! {}),)*
            $(vcuda_driver_api::signature!($gated, entry! {})),*
        ];

        /// The rows' positions in the order of their names.
        pub(crate) static BY_NAME: [u16; NAMES.len()] = $crate::hooks::table::sorted(&NAMES);

        /// The exported functions: what an application calls.
        mod exports {
            use vcuda_driver_api::prelude::*;
            use $crate::hooks::table::{export, export_gated};
            $(vcuda_driver_api::signature!($name, export! { $answer $module $handler $($is_done)? });)*
            $(vcuda_driver_api::signature!($gated, export_gated! {});)*

            /// The driver's functions of the same names, for the application's own calls.
            mod real {
                use vcuda_driver_api::prelude::*;
                use $crate::hooks::table::caller;
                use $crate::hooks::{Position, TABLE};
                $(vcuda_driver_api::signature!($name, caller! {});)*
                $(vcuda_driver_api::signature!($gated, caller! {});)*
            }
        }
    };
}
pub(crate) use hooks;

/// Beginning of an exported function: instructions that do nothing, which UCX (MPI, NIXL, Dask) can put its jump in place of.
///
/// Its patcher moves the first instructions of a function elsewhere, and knows only a few (UCX,
/// `src/ucm/bistro/bistro_x86_64.c`, `bistro_aarch64.c`). On x86-64 it takes 12 bytes. NVIDIA's functions begin with the same two
/// instructions, a comparison with a word and a short jump. On aarch64 it takes 16 bytes; moves between registers are known.
///
/// Not without effects on memory: the compiler would put the function's loads before it.
#[inline(always)]
pub(crate) fn begin() {
    #[cfg(target_arch = "x86_64")]
    {
        static COMPARED: u32 = 0;
        // SAFETY: reads a word of this library, and goes on whatever it is. The constant has no shorter form.
        unsafe {
            asm!("cmp dword ptr [rip + {word}], 0x7fffffff", "je 2f", "2:", word = sym COMPARED, options(nostack));
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a register becomes what it is.
    unsafe {
        asm!("mov x16, x16", "mov x16, x16", "mov x16, x16", "mov x16, x16", options(nostack));
    }
}

/// Makes a row.
macro_rules! entry {
    ({} $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        $crate::hooks::table::Row::new(
            $crate::driver::real::c_name(concat!(stringify!($name), "\0")),
            <$ret as $crate::driver::real::DriverStatus>::LIBRARY,
            exports::$name as *const core::ffi::c_void,
        )
    };
}
pub(crate) use entry;

/// The exported function of a row. If idle, it is its beginning, a load, a branch and a jump to the driver. All else is in a function
/// of its own, so that its registers are not saved for nothing.
macro_rules! export {
    ({ $answer:ident $module:ident $handler:ident $($is_done:ident)? } $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and prototype")]
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            $crate::hooks::table::begin();
            #[allow(clippy::too_many_arguments, reason = "the driver's prototype")]
            #[inline(never)]
            unsafe extern "C-unwind" fn managed($($arg: $ty),*) -> $ret {
                // SAFETY: the arguments go on as they came.
                let real = || unsafe { real::$name($($arg),*) };
                if $crate::driver::reentrancy::is_inside() {
                    return match super::nested::prove() {
                        // SAFETY: as above.
                        Some(_nested) => unsafe { managed($($arg),*) },
                        None => real(),
                    };
                }
                const SHIELDED: bool = super::$module::HANDLERS.defers_cancellation;
                const DEFAULT_STREAM: $crate::driver::DefaultStream = $crate::driver::DefaultStream::of_function(stringify!($name));
                let lacks_room = core::cell::Cell::new(false);
                let answer = $crate::driver::guarded::<SHIELDED, _>($crate::driver::Answer::$answer, DEFAULT_STREAM, &real, |call| {
                    let _passage = super::$module::HANDLERS.passes_gate.then(|| $crate::runtime::suspend::enter());
                    let may_move_memory = super::$module::HANDLERS.may_move_memory;
                    let _in_flight = may_move_memory.then(|| $crate::runtime::shim::built()).flatten().map(|shim| shim.in_flight.enter());
                    let outcome = super::$module::$handler(call, $($arg),*);
                    lacks_room.set(may_move_memory && call.lacks_room(outcome));
                    call.conclude(outcome)
                });
                if lacks_room.get() {
                    // SAFETY: as above.
                    return $crate::runtime::room::again(answer, || unsafe { managed($($arg),*) });
                }
                answer
            }
            let next = $crate::hooks::table::unless!({ managed $module $($is_done)? } $name ($($arg: $ty),*) -> $ret);
            $crate::hooks::table::jump!(super::$module::idle(), next, $name ($($arg: $ty),*) -> $ret)
        }
    };
}
pub(crate) use export;

/// The exported function of a row that only passes the gate.
macro_rules! export_gated {
    ({} $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and prototype")]
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            $crate::hooks::table::begin();
            #[allow(clippy::too_many_arguments, reason = "the driver's prototype")]
            #[inline(never)]
            unsafe extern "C-unwind" fn gated($($arg: $ty),*) -> $ret {
                let Some(_passed) = super::gate::pass() else {
                    return match super::nested::prove() {
                        // SAFETY: the arguments go on as they came.
                        Some(_nested) => unsafe { gated($($arg),*) },
                        // SAFETY: as above.
                        None => unsafe { real::$name($($arg),*) },
                    };
                };
                // SAFETY: as above.
                unsafe { real::$name($($arg),*) }
            }
            $crate::hooks::table::jump!(super::gate::idle(), gated, $name ($($arg: $ty),*) -> $ret)
        }
    };
}
pub(crate) use export_gated;

/// Continuation of an exported function that is not idle: the handler, or first the row's function behind `unless`,
/// which also gets the meaning of stream 0. If that returns true, the call ends in a jump to the driver; in a process whose
/// calls pass a gate, in a call that first passes it.
macro_rules! unless {
    ({ $managed:ident $module:ident } $name:ident ($($arg:ident : $ty:ty),*) -> $ret:ty) => { $managed };
    ({ $managed:ident $module:ident $is_done:ident } $name:ident ($($arg:ident : $ty:ty),*) -> $ret:ty) => {{
        const DEFAULT_STREAM: $crate::driver::DefaultStream = $crate::driver::DefaultStream::of_function(stringify!($name));
        #[allow(clippy::too_many_arguments, reason = "the driver's prototype")]
        #[inline(never)]
        unsafe extern "C-unwind" fn may_go($($arg: $ty),*) -> $ret {
            $crate::hooks::table::jump!(super::$module::$is_done(false, DEFAULT_STREAM, $($arg),*), may_go_behind_gate, $name ($($arg: $ty),*) -> $ret)
        }
        #[allow(clippy::too_many_arguments, reason = "the driver's prototype")]
        #[inline(never)]
        unsafe extern "C-unwind" fn may_go_behind_gate($($arg: $ty),*) -> $ret {
            if !super::gate::idle()
                && let Some(_passed) = super::gate::pass()
                && super::$module::$is_done(true, DEFAULT_STREAM, $($arg),*)
            {
                // SAFETY: the arguments go on as they came.
                return unsafe { real::$name($($arg),*) };
            }
            // SAFETY: as above.
            unsafe { $managed($($arg),*) }
        }
        may_go
    }};
}
pub(crate) use unless;

/// Goes on to the driver's own function if its address is known and `$to_driver` holds, else to `$otherwise`, with the same arguments.
macro_rules! jump {
    ($to_driver:expr, $otherwise:expr, $name:ident ($($arg:ident : $ty:ty),*) -> $ret:ty) => {{
        #[expect(clippy::indexing_slicing, reason = "a position is below the table's length, which the compiler sees")]
        let address = super::TABLE[super::Position::$name as usize].slot().known();
        let mut next: unsafe extern "C-unwind" fn($($ty),*) -> $ret = $otherwise;
        if !address.is_null() && $to_driver {
            // SAFETY: the slot holds the address of the driver's function of this name, whose prototype this is.
            next = unsafe { core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(address) };
        }
        // SAFETY: the arguments go on as they came. One call in tail position: it compiles to a jump.
        unsafe { next($($arg),*) }
    }};
}
pub(crate) use jump;

/// The call of the driver's function of a row with the application's own arguments, in the thread's own capture mode.
macro_rules! caller {
    ({} $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and prototype")]
        #[expect(clippy::indexing_slicing, reason = "a position is below the table's length, which the compiler sees")]
        #[inline]
        pub(super) unsafe fn $name($($arg: $ty),*) -> $ret {
            let row = &TABLE[Position::$name as usize];
            $crate::driver::real::call_through!(row.slot(), ($($arg: $ty),*) -> $ret)
        }
    };
}
pub(crate) use caller;
