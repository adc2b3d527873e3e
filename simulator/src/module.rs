//! Modules and functions (CUDA Driver API, "Module Management", "Execution Control"): the objects.
//!
//! `module_api.rs` loads and asks, `function_api.rs` has the functions' attributes, `library.rs` the libraries,
//! which are code that no context owns yet.

use core::sync::atomic::{AtomicI32, Ordering};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::attributes::{SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPT_IN, THREADS_PER_BLOCK};
use crate::context::Context;
use crate::device::Device;
use crate::image::{Image, KernelInfo};
use crate::launch::pace::Pace;
use crate::memory::{self, Kind};
use crate::process::process;
use crate::stream::queue::Stream;
use crate::table::{Kind as HandleKind, Table};

pub(crate) use crate::image::Parameter;

/// All loaded modules.
pub(crate) static MODULES: Table<Module> = Table::new(HandleKind::Module);
/// All functions that have been asked for.
pub(crate) static FUNCTIONS: Table<Function> = Table::new(HandleKind::Function);

/// A module: an image loaded into a context.
#[derive(Debug)]
pub(crate) struct Module {
    /// What the program knows it by.
    pub(crate) handle: usize,
    /// What it was loaded from.
    pub(crate) image: Arc<Image>,
    device: &'static Device,
    /// `Context::unique` and handle.
    context: (u64, usize),
    /// Made at the first question for each, by name.
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
    /// Address and bytes, by name.
    globals: BTreeMap<String, (u64, u64)>,
    /// Bytes taken for the module's code.
    code_bytes: u64,
}

/// A function of a module.
#[derive(Debug)]
pub(crate) struct Function {
    /// What the program knows it by.
    pub(crate) handle: usize,
    /// Its module's handle.
    pub(crate) module: usize,
    /// `Context::unique` of its module's context.
    pub(crate) context: u64,
    /// The kernel of a library that it belongs to, by handle; 0 for none.
    pub(crate) name: CString,
    /// In the parameter buffer; empty where the image does not tell.
    pub(crate) parameters: Vec<Parameter>,
    /// What the image says.
    pub(crate) info: KernelInfo,
    /// `CU_FUNC_ATTRIBUTE_PTX_VERSION` and `BINARY_VERSION`.
    pub(crate) architecture: u32,
    /// Multiprocessors of its device.
    pub(crate) sms: u32,
    /// How long it runs.
    pub(crate) pace: Pace,
    /// What the program may set.
    pub(crate) settings: Settings,
}

/// Attributes that `cuFuncSetAttribute` and `cuKernelSetAttribute` change.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Bytes of dynamic shared memory that a launch may ask for.
    pub(crate) max_dynamic_shared: AtomicI32,
    /// Percent of the shared memory that is preferred; -1 for the driver's choice.
    pub(crate) carveout: AtomicI32,
    /// Required cluster width, height, depth; non-portable sizes; scheduling policy.
    pub(crate) cluster: [AtomicI32; 5],
}

impl Settings {
    /// The values of a function that nobody has changed.
    pub(crate) fn new(shared_bytes: u32) -> Settings {
        let rest = SHARED_PER_BLOCK.saturating_sub(i32::try_from(shared_bytes).unwrap_or(i32::MAX));
        Settings {
            max_dynamic_shared: AtomicI32::new(rest.max(0)),
            carveout: AtomicI32::new(-1),
            cluster: [const { AtomicI32::new(0) }; 5],
        }
    }

    /// Copies what was set on a kernel to its function.
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
    /// Most threads of a block.
    #[inline]
    pub(crate) fn max_threads(&self) -> u32 {
        let most = THREADS_PER_BLOCK.unsigned_abs();
        if self.info.max_threads == 0 {
            most
        } else {
            self.info.max_threads.min(most)
        }
    }

    /// Bytes of dynamic shared memory that a launch may ask for.
    #[inline]
    pub(crate) fn max_dynamic_shared(&self) -> u32 {
        self.settings
            .max_dynamic_shared
            .load(Ordering::Relaxed)
            .unsigned_abs()
    }

    /// The most that `max_dynamic_shared` may be set to.
    pub(crate) fn opt_in_limit(shared_bytes: u32) -> i32 {
        SHARED_PER_BLOCK_OPT_IN.saturating_sub(i32::try_from(shared_bytes).unwrap_or(i32::MAX))
    }
}

impl Module {
    /// Loads an image into a context: its variables and the configured bytes for its code are taken.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, with nothing taken.
    pub(crate) fn load(image: Arc<Image>, context: &Context) -> Result<Arc<Module>, CUerror> {
        let process = process()?;
        let device = context.device;
        let mut loading = Loading {
            device,
            code_bytes: 0,
            globals: BTreeMap::new(),
        };
        let code_bytes = process.machine.config().module_bytes;
        if code_bytes > 0 {
            crate::backing::take(device, code_bytes)?;
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

    /// A function by name; the same one each time.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
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
            module: self.handle,
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

    /// A variable by name: address and bytes.
    pub(crate) fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }

    /// Ends it and its functions, and gives its memory back.
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

/// What a kernel of an image is; of an image that cannot be read, any name is one.
pub(crate) fn kernel_info(image: &Image, name: &str) -> Option<KernelInfo> {
    let known = image.kernels.iter().find(|kernel| kernel.name == name).cloned();
    known.or_else(|| {
        // The simulator's own kernels have one parameter of 64 bits.
        let is_own = matches!(name, "vcuda_spin_ns" | "vcuda_work");
        let parameters = is_own.then(|| vec![Parameter { offset: 0, size: 8 }]);
        image.is_opaque.then(|| KernelInfo {
            name: name.to_owned(),
            parameters,
            ..KernelInfo::default()
        })
    })
}

/// What a load has taken so far; given back if it does not come to its end.
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

/// A context ends: its modules go.
pub(crate) fn forget_context(context: &Context) {
    for module in MODULES
        .all()
        .iter()
        .filter(|module| module.context.0 == context.unique)
    {
        module.unload();
    }
    crate::library::forget_context(context.unique);
}

/// The module behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub(crate) fn module(handle: CUmodule) -> Result<Arc<Module>, CUerror> {
    process()?;
    MODULES.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

/// The function behind a handle; a kernel's handle stands for its function in the current context ("kernel
/// handle may be passed in place of a function", `cuLaunchKernel`).
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`; those of loading the kernel's library.
pub(crate) fn function(handle: CUfunction) -> Result<Arc<Function>, CUerror> {
    process()?;
    if let Some(function) = FUNCTIONS.get(handle.0) {
        return Ok(function);
    }
    crate::library::kernel(CUkernel(handle.0))?.function(&*crate::current::current()?)
}

/// The function that a launch in a stream means.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`, also where function and stream are of different contexts.
#[inline]
pub(crate) fn function_for(handle: CUfunction, stream: &Stream) -> Result<Arc<Function>, CUerror> {
    if let Some(function) = FUNCTIONS.get(handle.0) {
        return if function.context == stream.context_unique {
            Ok(function)
        } else {
            Err(CUerror::INVALID_HANDLE)
        };
    }
    let kernel = crate::library::kernel(CUkernel(handle.0))?;
    kernel.function(&*crate::context::context(stream.context)?)
}
