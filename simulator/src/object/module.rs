//! Modules and functions (CUDA Driver API, "Module Management", "Execution Control"): the objects.
//!
//! `library.rs` has libraries, whose code belongs to no context.

use core::sync::atomic::{AtomicI32, Ordering};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::base::image::{Image, KernelInfo};
use crate::base::pace::Pace;
use crate::base::table::{Kind as HandleKind, Table};
use crate::object::attributes::{SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPT_IN, THREADS_PER_BLOCK};
use crate::object::context::Context;
use crate::object::device::Device;
use crate::object::memory::{self, Kind};
use crate::object::process::process;

pub(crate) use crate::base::image::Parameter;

pub(crate) static MODULES: Table<Module> = Table::new(HandleKind::Module);
/// All functions that were requested.
pub(crate) static FUNCTIONS: Table<Function> = Table::new(HandleKind::Function);

/// A module: an image loaded into a context.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) handle: usize,
    /// Image from which it was loaded.
    pub(crate) image: Arc<Image>,
    device: &'static Device,
    /// `Context::unique` and handle of its context.
    context: (u64, usize),
    /// Functions by name, made when first requested.
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
    /// Address and size of variables (bytes), by name.
    globals: BTreeMap<String, (u64, u64)>,
    /// Memory for the module's code (bytes).
    code_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) handle: usize,
    /// `Context::unique` of its module's context.
    pub(crate) context: u64,
    pub(crate) name: CString,
    /// Parameters; empty if the image does not tell.
    pub(crate) parameters: Vec<Parameter>,
    /// Facts in the image.
    pub(crate) info: KernelInfo,
    /// Value for `CU_FUNC_ATTRIBUTE_PTX_VERSION` and `BINARY_VERSION`.
    pub(crate) architecture: u32,
    /// Number of multiprocessors of its device.
    pub(crate) sms: u32,
    pub(crate) pace: Pace,
    /// Attributes that the program can set.
    pub(crate) settings: Settings,
}

/// Attributes that `cuFuncSetAttribute` and `cuKernelSetAttribute` change.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Maximum dynamic shared memory of a launch (bytes).
    pub(crate) max_dynamic_shared: AtomicI32,
    /// Preferred shared memory (percent); -1: the driver's choice.
    pub(crate) carveout: AtomicI32,
    /// Required cluster width, height, depth; non-portable sizes; scheduling policy.
    pub(crate) cluster: [AtomicI32; 5],
}

impl Settings {
    pub(crate) fn new(shared_bytes: u32) -> Settings {
        let rest = SHARED_PER_BLOCK.saturating_sub(i32::try_from(shared_bytes).unwrap_or(i32::MAX));
        Settings {
            max_dynamic_shared: AtomicI32::new(rest.max(0)),
            carveout: AtomicI32::new(-1),
            cluster: [const { AtomicI32::new(0) }; 5],
        }
    }

    /// Copies the settings of a kernel to its function.
    pub(crate) fn copy_from(&self, other: &Settings) {
        let copy =
            |to: &AtomicI32, from: &AtomicI32| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        copy(&self.max_dynamic_shared, &other.max_dynamic_shared);
        copy(&self.carveout, &other.carveout);
        for (to, from) in self.cluster.iter().zip(&other.cluster) {
            copy(to, from);
        }
    }
}

impl Function {
    /// Maximum number of threads per block.
    #[inline]
    pub(crate) fn max_threads(&self) -> u32 {
        let most = THREADS_PER_BLOCK.unsigned_abs();
        if self.info.max_threads == 0 { most } else { self.info.max_threads.min(most) }
    }

    /// Maximum dynamic shared memory of a launch (bytes).
    #[inline]
    pub(crate) fn max_dynamic_shared(&self) -> u32 {
        self.settings.max_dynamic_shared.load(Ordering::Relaxed).unsigned_abs()
    }

    /// Maximum value for `max_dynamic_shared`.
    pub(crate) fn opt_in_limit(shared_bytes: u32) -> i32 {
        SHARED_PER_BLOCK_OPT_IN.saturating_sub(i32::try_from(shared_bytes).unwrap_or(i32::MAX))
    }
}

impl Module {
    /// Loads an image into a context, with memory for its variables and the configured memory for its code. Error:
    /// `CUDA_ERROR_OUT_OF_MEMORY`, with nothing taken.
    pub(crate) fn load(image: Arc<Image>, context: &Context) -> Result<Arc<Module>, CUerror> {
        let process = process()?;
        let device = context.device;
        let mut loading = Loading { device, code_bytes: 0, globals: BTreeMap::new() };
        let code_bytes = process.machine.config().module_bytes;
        if code_bytes > 0 {
            crate::object::backing::take(device, code_bytes)?;
            loading.code_bytes = code_bytes;
        }
        for global in image.globals.iter().filter(|global| global.bytes > 0) {
            let bytes = global.bytes as u64;
            let address = memory::allocate(bytes, Kind::Global, device, Some(context))?;
            loading.globals.insert(global.name.clone(), (address, bytes));
            // SAFETY: memory of this size has just been allocated; fresh addresses may hold old contents.
            unsafe { core::ptr::write_bytes(address as *mut u8, 0, global.bytes) };
            let length = global.value.len().min(global.bytes);
            // SAFETY: as above; `length` bytes of the value are ours and elsewhere.
            unsafe { core::ptr::copy_nonoverlapping(global.value.as_ptr(), address as *mut u8, length) };
        }
        let globals = core::mem::take(&mut loading.globals);
        loading.code_bytes = 0;
        let make = |handle| Module {
            handle,
            image,
            device,
            context: (context.unique, context.handle),
            functions: Mutex::default(),
            globals,
            code_bytes,
        };
        Ok(MODULES.insert_with(make).1)
    }

    /// A function by name, the same at each call.
    pub(crate) fn function(&self, name: &str) -> Result<Arc<Function>, CUerror> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(Arc::clone(function));
        }
        let info = kernel_info(&self.image, name).ok_or(CUerror::NOT_FOUND)?;
        let c_name = CString::new(name).map_err(|_| CUerror::NOT_FOUND)?;
        let pace = Pace::of(process()?.machine.config(), name);
        let (_, function) = FUNCTIONS.insert_with(|handle| Function {
            handle,
            context: self.context.0,
            name: c_name,
            parameters: info.parameters.clone().unwrap_or_default(),
            settings: Settings::new(info.shared_bytes),
            architecture: self.image.architecture,
            sms: self.device.config.sms,
            pace,
            info,
        });
        functions.insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// Address and size of a variable by name (bytes).
    pub(crate) fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }

    /// Ends the module and its functions, and frees its memory.
    pub(crate) fn unload(&self) {
        if MODULES.remove(self.handle).is_none() {
            return;
        }
        for function in self.functions.lock().values() {
            FUNCTIONS.remove(function.handle);
        }
        give_back(self.device, self.code_bytes, &self.globals);
    }
}

/// Facts about a kernel of an image. In an image that could not be read, every name is a kernel.
pub(crate) fn kernel_info(image: &Image, name: &str) -> Option<KernelInfo> {
    let known = image.kernels.iter().find(|kernel| kernel.name == name).cloned();
    known.or_else(|| {
        // The simulator's own kernels have one parameter of 64 bits.
        let is_own = matches!(name, "vcuda_spin_ns" | "vcuda_work");
        let parameters = is_own.then(|| vec![Parameter { offset: 0, size: 8 }]);
        image.is_opaque.then(|| KernelInfo { name: name.to_owned(), parameters, ..KernelInfo::default() })
    })
}

/// Memory taken by a load, freed if the load fails.
struct Loading {
    device: &'static Device,
    code_bytes: u64,
    globals: BTreeMap<String, (u64, u64)>,
}

impl Drop for Loading {
    fn drop(&mut self) {
        give_back(self.device, self.code_bytes, &self.globals);
    }
}

fn give_back(device: &'static Device, code_bytes: u64, globals: &BTreeMap<String, (u64, u64)>) {
    let Ok(process) = process() else { return };
    if code_bytes > 0 {
        process.client.give(device.gpu, code_bytes);
    }
    for &(address, _) in globals.values() {
        if let Some(range) = memory::remove(address, |kind| kind == Kind::Global) {
            memory::release(process, &range);
        }
    }
}

/// Ends the modules of an ending context.
pub(crate) fn forget_context(context: &Context) {
    for module in MODULES.all().iter().filter(|module| module.context.0 == context.unique) {
        module.unload();
    }
}

pub(crate) fn module(handle: CUmodule) -> Result<Arc<Module>, CUerror> {
    process()?;
    MODULES.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}
