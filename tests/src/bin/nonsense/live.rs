//! Valid objects for arguments that are not under test.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

use vcuda_driver_api::prelude::*;
use vcuda_driver_api::{cuda, nvml};

/// A kernel that takes no argument.
const CODE: &CStr =
    c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry vcuda_nothing()\n{\n  ret;\n}\n";

/// State of a process before its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing was called.
    Nothing,
    /// Driver and NVML are initialised; no context is current.
    Started,
    /// A context is current.
    Context,
}

impl Stage {
    /// The stage of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "nothing" => Some(Stage::Nothing),
            "started" => Some(Stage::Started),
            "context" => Some(Stage::Context),
            _ => None,
        }
    }
}

/// The two opened libraries.
#[derive(Debug)]
pub(crate) struct Driver {
    cuda: *mut c_void,
    nvml: *mut c_void,
    device: nvmlDevice_t,
}

/// Calls a function of the driver by its name and its type.
macro_rules! ask {
    ($driver:ident . $module:ident $name:ident ($($argument:expr),*)) => {{
        let address = $driver.symbol(stringify!($name));
        assert!(!address.is_null(), "the driver has no {}", stringify!($name));
        // SAFETY: the address of the function of this name, whose type this is.
        let function: $module::fn_types::$name = unsafe { std::mem::transmute(address) };
        // SAFETY: pointers are to variables of this function; what they are for is the driver's documentation.
        unsafe { function($($argument),*) }
    }};
}

impl Driver {
    /// Opens both libraries, and proceeds to the stage.
    pub(crate) fn open(stage: Stage) -> Self {
        let mut driver = Driver {
            cuda: open(c"libcuda.so.1"),
            nvml: open(c"libnvidia-ml.so.1"),
            device: nvmlDevice_t::NULL,
        };
        if stage == Stage::Nothing {
            return driver;
        }
        ask!(driver.cuda cuInit(0)).unwrap();
        ask!(driver.nvml nvmlInit_v2()).unwrap();
        let mut device = nvmlDevice_t::NULL;
        ask!(driver.nvml nvmlDeviceGetHandleByIndex_v2(0, &raw mut device)).unwrap();
        driver.device = device;
        if stage == Stage::Context {
            let mut context = CUcontext::NULL;
            ask!(driver.cuda cuDevicePrimaryCtxRetain(&raw mut context, 0)).unwrap();
            ask!(driver.cuda cuCtxSetCurrent(context)).unwrap();
        }
        driver
    }

    /// The address of an exported function; null if there is none.
    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let library = if name.starts_with("nvml") { self.nvml } else { self.cuda };
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        unsafe { libc::dlsym(library, name.as_ptr()) }
    }

    /// NVML's figure of the memory in use of the first GPU, in bytes.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        if self.device.is_null() {
            return None;
        }
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        ask!(self.nvml nvmlDeviceGetMemoryInfo(self.device, &raw mut memory)).ok()?;
        Some(memory.used)
    }

    /// An object of the type; null if none can be made.
    fn make(&self, type_name: &str) -> u64 {
        let mut made = 0_u64;
        let place = &raw mut made;
        match type_name {
            "nvmlDevice_t" => made = self.device.0 as u64,
            "CUcontext" => {
                let _ = ask!(self.cuda cuCtxGetCurrent(place.cast()));
            }
            "CUdevResourceDesc" => made = self.resources().0 as u64,
            "CUgreenCtx" => {
                let _ = ask!(self.cuda cuGreenCtxCreate(place.cast(), self.resources(), 0, 1));
            }
            "CUevent" => {
                let _ = ask!(self.cuda cuEventCreate(place.cast(), 0));
            }
            "CUgraph" => made = self.graph().0.0 as u64,
            "CUgraphNode" => made = self.graph().1.0 as u64,
            "CUgraphExec" => {
                let _ = ask!(self.cuda cuGraphInstantiateWithFlags(place.cast(), self.graph().0, 0));
            }
            "CUmodule" | "CUfunction" | "CUlibrary" | "CUkernel" => self.code(type_name, place),
            _ => self.memory(type_name, place),
        }
        made
    }

    /// Memory of the type, or an object made of memory.
    fn memory(&self, type_name: &str, place: *mut u64) {
        match type_name {
            "CUdeviceptr" => {
                let _ = ask!(self.cuda cuMemAlloc_v2(place, 1 << 20));
            }
            "CUmemGenericAllocationHandle" => {
                // SAFETY: numbers and a null pointer; zeros are a value of it.
                let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
                properties.r#type = CUmemAllocationType::PINNED;
                properties.location.r#type = CUmemLocationType::DEVICE;
                let _ = ask!(self.cuda cuMemCreate(place, 2 << 20, &raw const properties, 0));
            }
            "CUexternalMemory" => self.external(place.cast()),
            "CUmemoryPool" => {
                // SAFETY: as above.
                let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
                properties.allocType = CUmemAllocationType::PINNED;
                properties.location.r#type = CUmemLocationType::DEVICE;
                let _ = ask!(self.cuda cuMemPoolCreate(place.cast(), &raw const properties));
            }
            "CUarray" => {
                let shape = CUDA_ARRAY_DESCRIPTOR {
                    Width: 64,
                    Height: 64,
                    Format: CUarray_format(1),
                    NumChannels: 1,
                };
                let _ = ask!(self.cuda cuArrayCreate_v2(place.cast(), &raw const shape));
            }
            "CUmipmappedArray" => {
                let shape = CUDA_ARRAY3D_DESCRIPTOR {
                    Width: 64,
                    Height: 64,
                    Depth: 0,
                    Format: CUarray_format(1),
                    NumChannels: 1,
                    Flags: 0,
                };
                let _ = ask!(self.cuda cuMipmappedArrayCreate(place.cast(), &raw const shape, 2));
            }
            _ => {}
        }
    }

    /// A module or a library with its kernel.
    fn code(&self, type_name: &str, place: *mut u64) {
        match type_name {
            "CUmodule" => {
                let _ = ask!(self.cuda cuModuleLoadData(place.cast(), CODE.as_ptr().cast()));
            }
            "CUfunction" => {
                let module = CUmodule(self.make("CUmodule") as usize);
                let _ = ask!(self.cuda cuModuleGetFunction(place.cast(), module, c"vcuda_nothing".as_ptr()));
            }
            "CUlibrary" => {
                let _ = ask!(self.cuda cuLibraryLoadData(
                    place.cast(),
                    CODE.as_ptr().cast(),
                    null_mut(),
                    null_mut(),
                    0,
                    null_mut(),
                    null_mut(),
                    0
                ));
            }
            "CUkernel" => {
                let library = CUlibrary(self.make("CUlibrary") as usize);
                let _ = ask!(self.cuda cuLibraryGetKernel(place.cast(), library, c"vcuda_nothing".as_ptr()));
            }
            _ => {}
        }
    }

    /// Memory that was exported as a descriptor and imported as another interface's.
    fn external(&self, place: *mut CUexternalMemory) {
        const DESCRIPTOR: u32 = 1;
        // SAFETY: numbers and null pointers; zeros are a value of it.
        let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.r#type = CUmemAllocationType::PINNED;
        properties.location.r#type = CUmemLocationType::DEVICE;
        properties.requestedHandleTypes = CUmemAllocationHandleType(DESCRIPTOR);
        let (mut handle, mut descriptor) = (0, -1);
        let _ = ask!(self.cuda cuMemCreate(&raw mut handle, 2 << 20, &raw const properties, 0));
        let kind = CUmemAllocationHandleType(DESCRIPTOR);
        let out = (&raw mut descriptor).cast();
        let _ = ask!(self.cuda cuMemExportToShareableHandle(out, handle, kind, 0));
        // SAFETY: as above.
        let mut foreign: CUDA_EXTERNAL_MEMORY_HANDLE_DESC = unsafe { std::mem::zeroed() };
        foreign.r#type = CUexternalMemoryHandleType(DESCRIPTOR);
        foreign.handle.fd = descriptor;
        foreign.size = 2 << 20;
        let _ = ask!(self.cuda cuImportExternalMemory(place, &raw const foreign));
    }

    /// Description of all multiprocessors of the first GPU.
    fn resources(&self) -> CUdevResourceDesc {
        let mut description = CUdevResourceDesc::NULL;
        // SAFETY: numbers; zeros are a value of it.
        let mut all: CUdevResource = unsafe { std::mem::zeroed() };
        let _ = ask!(self.cuda cuDeviceGetDevResource(0, &raw mut all, CUdevResourceType(1)));
        let _ = ask!(self.cuda cuDevResourceGenerateDesc(&raw mut description, &raw mut all, 1));
        description
    }

    /// A graph with one node.
    fn graph(&self) -> (CUgraph, CUgraphNode) {
        let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
        let _ = ask!(self.cuda cuGraphCreate(&raw mut graph, 0));
        let _ = ask!(self.cuda cuGraphAddEmptyNode(&raw mut node, graph, std::ptr::null(), 0));
        (graph, node)
    }
}

/// Valid objects of a process, one of each type.
#[derive(Debug, Default)]
pub(crate) struct Live(HashMap<&'static str, u64>);

impl Live {
    /// The object of this type.
    pub(crate) fn object(&mut self, driver: &Driver, type_name: &'static str) -> u64 {
        *self.0.entry(type_name).or_insert_with(|| driver.make(type_name))
    }
}

fn open(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; the driver's initialisers are trusted, as everywhere.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{name:?} cannot be opened");
    library
}
