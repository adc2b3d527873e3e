//! Libraries and kernels (CUDA Driver API, "Library Management"): code that is loaded into a context at its first use there
//! ("lazy loading").

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::base::image::{Image, KernelInfo};
use crate::base::table::{Kind, Table};
use crate::object::context::Context;
use crate::object::module::{FUNCTIONS, Function, Module, Settings, kernel_info};
use crate::object::process::process;
use crate::object::stream::Stream;

pub(crate) static LIBRARIES: Table<Library> = Table::new(Kind::Library);
/// All kernels that were requested.
pub(crate) static KERNELS: Table<Kernel> = Table::new(Kind::Kernel);

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) handle: usize,
    pub(crate) image: Arc<Image>,
    /// Its modules, by `Context::unique`.
    modules: Mutex<BTreeMap<u64, Arc<Module>>>,
    kernels: Mutex<BTreeMap<String, usize>>,
}

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) library: usize,
    /// Facts in the image.
    pub(crate) info: KernelInfo,
    /// Settings by the program, for all contexts.
    pub(crate) settings: Settings,
    /// Its functions by context (`Context::unique`).
    functions: Mutex<BTreeMap<u64, Arc<Function>>>,
}

impl Library {
    /// Makes a library from an image.
    pub(crate) fn create(image: Arc<Image>) -> Arc<Library> {
        let make = |handle| Library { handle, image, modules: Mutex::default(), kernels: Mutex::default() };
        LIBRARIES.insert_with(make).1
    }

    /// Its module in a context, loaded at the first call.
    pub(crate) fn module(&self, context: &Context) -> Result<Arc<Module>, CUerror> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.unique) {
            return Ok(Arc::clone(module));
        }
        let module = Module::load(Arc::clone(&self.image), context)?;
        modules.insert(context.unique, Arc::clone(&module));
        Ok(module)
    }

    /// Handle of a kernel by name, the same at each call.
    pub(crate) fn kernel(&self, name: &str) -> Result<usize, CUerror> {
        let mut kernels = self.kernels.lock();
        if let Some(&handle) = kernels.get(name) {
            return Ok(handle);
        }
        let info = kernel_info(&self.image, name).ok_or(CUerror::NOT_FOUND)?;
        let handle = KERNELS.insert(Kernel {
            library: self.handle,
            settings: Settings::new(info.shared_bytes),
            info,
            functions: Mutex::default(),
        });
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// Ends the library, its kernels and its modules.
    pub(crate) fn unload(&self) {
        LIBRARIES.remove(self.handle);
        for handle in self.kernels.lock().values() {
            KERNELS.remove(*handle);
        }
        for module in self.modules.lock().values() {
            module.unload();
        }
    }
}

impl Kernel {
    /// Its function in a context; loads the library there at the first use. Errors: `CUDA_ERROR_INVALID_HANDLE` if the
    /// library is gone, `CUDA_ERROR_OUT_OF_MEMORY`.
    #[inline]
    pub(crate) fn function(&self, context: &Context) -> Result<Arc<Function>, CUerror> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(&context.unique) {
            return Ok(Arc::clone(function));
        }
        let module = library(CUlibrary(self.library))?.module(context)?;
        let function = module.function(&self.info.name)?;
        function.settings.copy_from(&self.settings);
        functions.insert(context.unique, Arc::clone(&function));
        Ok(function)
    }

    pub(crate) fn functions(&self) -> Vec<Arc<Function>> {
        self.functions.lock().values().cloned().collect()
    }
}

/// Removes the entries of a context that has ended, whose modules were unloaded.
pub(crate) fn forget_context(unique: u64) {
    for library in LIBRARIES.all() {
        library.modules.lock().remove(&unique);
    }
    for kernel in KERNELS.all() {
        kernel.functions.lock().remove(&unique);
    }
}

/// Whether a module belongs to a library, and cannot be unloaded by `cuModuleUnload`.
pub(crate) fn owns(module: usize) -> bool {
    LIBRARIES.all().iter().any(|library| library.modules.lock().values().any(|owned| owned.handle == module))
}

pub(crate) fn library(handle: CUlibrary) -> Result<Arc<Library>, CUerror> {
    process()?;
    LIBRARIES.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

pub(crate) fn kernel(handle: CUkernel) -> Result<Arc<Kernel>, CUerror> {
    process()?;
    KERNELS.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

/// The function behind a handle; a kernel's handle stands for its function in the current context ("kernel handle may
/// be passed in place of a function", `cuLaunchKernel`). Errors: `CUDA_ERROR_INVALID_HANDLE`; those of loading the
/// kernel's library.
pub(crate) fn function(handle: CUfunction) -> Result<Arc<Function>, CUerror> {
    process()?;
    if let Some(function) = FUNCTIONS.get(handle.0) {
        return Ok(function);
    }
    kernel(CUkernel(handle.0))?.function(&*crate::object::current::current()?)
}

/// The function for a launch in a stream. Error: `CUDA_ERROR_INVALID_HANDLE`, also where function and stream are of
/// different contexts.
#[inline]
pub(crate) fn function_for(handle: CUfunction, stream: &Stream) -> Result<Arc<Function>, CUerror> {
    if let Some(function) = FUNCTIONS.get(handle.0) {
        return if function.context == stream.context_unique {
            Ok(function)
        } else {
            Err(CUerror::INVALID_HANDLE)
        };
    }
    let kernel = kernel(CUkernel(handle.0))?;
    kernel.function(&*crate::object::context::context(stream.context)?)
}
