//! THE TABLE: every function that is hooked, and its handler. How a row is read: [`crate::ffi::table`].

mod array;
mod context;
mod device;
mod external;
mod graph;
mod graph_memory;
pub(crate) mod green;
mod host;
mod ipc;
mod launch;
mod lookup;
mod memory;
mod module;
mod multicast;
mod nvml;
mod pitch;
mod pool;
mod pool_share;
mod sparse;
mod synchronise;
mod vmm;
mod vmm_share;

pub(crate) use context::primary as primary_context;

use core::cmp;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use vcuda_driver_api::{CUresult, nvmlReturn_t};

use crate::ffi::real::Library;
use crate::ffi::table::{Row, entry, hooks};

hooks! {
    deny cuMemAlloc                     => memory::alloc_v1;
    deny cuMemAlloc_v2                  => memory::alloc;
    deny cuMemAllocPitch                => pitch::pitch_v1;
    deny cuMemAllocPitch_v2             => pitch::pitch;
    deny cuMemAllocManaged              => memory::managed;
    pass cuMemFree                      => memory::free_v1;
    pass cuMemFree_v2                   => memory::free;

    deny cuMemAllocAsync                => pool::alloc;
    deny cuMemAllocAsync_ptsz           => pool::alloc_ptsz;
    deny cuMemAllocFromPoolAsync        => pool::alloc_from;
    deny cuMemAllocFromPoolAsync_ptsz   => pool::alloc_from_ptsz;
    pass cuMemFreeAsync                 => pool::free;
    pass cuMemFreeAsync_ptsz            => pool::free_ptsz;
    pass cuMemPoolCreate                => pool::create;
    pass cuMemPoolDestroy               => pool::destroy;
    pass cuMemPoolTrimTo                => pool::trim;
    pass cuMemPoolSetAttribute          => pool::set_attribute;
    pass cuMemPoolImportFromShareableHandle => pool_share::import;
    pass cuMemPoolExportPointer         => pool_share::export_pointer;
    deny cuMemPoolImportPointer         => pool_share::import_pointer;
    pass cuStreamSynchronize            => synchronise::stream;
    pass cuStreamSynchronize_ptsz       => synchronise::stream;
    pass cuEventSynchronize             => synchronise::event;
    pass cuCtxSynchronize               => synchronise::context;
    pass cuCtxSynchronize_v2            => synchronise::context_v2;

    deny cuMemCreate                    => vmm::create;
    pass cuMemRelease                   => vmm::release;
    pass cuMemRetainAllocationHandle    => vmm::retain;
    deny cuMemMap                       => vmm::map;
    pass cuMemUnmap                     => vmm::unmap;
    pass cuMemExportToShareableHandle   => vmm_share::export;
    deny cuMemImportFromShareableHandle => vmm_share::import;
    pass cuMemMapArrayAsync             => sparse::map;
    pass cuMemMapArrayAsync_ptsz        => sparse::map_per_thread;
    pass cuMulticastCreate              => multicast::create;
    pass cuMulticastAddDevice           => multicast::add_device;
    pass cuMulticastBindMem             => multicast::bind_mem;
    pass cuMulticastBindMem_v2          => multicast::bind_mem_v2;
    pass cuMulticastBindAddr            => multicast::bind_addr;
    pass cuMulticastBindAddr_v2         => multicast::bind_addr_v2;
    pass cuMulticastUnbind              => multicast::unbind;

    pass cuIpcGetMemHandle              => ipc::export;
    deny cuIpcOpenMemHandle             => ipc::open;
    deny cuIpcOpenMemHandle_v2          => ipc::open;
    pass cuIpcCloseMemHandle            => ipc::close;

    deny cuImportExternalMemory         => external::import;
    pass cuExternalMemoryGetMappedBuffer => external::buffer;
    pass cuExternalMemoryGetMappedMipmappedArray => external::mipmap;
    pass cuDestroyExternalMemory        => external::destroy;

    deny cuArrayCreate                  => array::create_v1;
    deny cuArrayCreate_v2               => array::create;
    deny cuArray3DCreate                => array::create_3d_v1;
    deny cuArray3DCreate_v2             => array::create_3d;
    deny cuMipmappedArrayCreate         => array::create_mipmap;
    pass cuArrayDestroy                 => array::destroy;
    pass cuMipmappedArrayDestroy        => array::destroy_mipmap;

    pass cuCtxCreate                    => context::create;
    pass cuCtxCreate_v2                 => context::create;
    pass cuCtxCreate_v3                 => context::create_v3;
    pass cuCtxCreate_v4                 => context::create_v4;
    pass cuGLCtxCreate                  => context::create;
    pass cuGLCtxCreate_v2               => context::create;
    pass cuVDPAUCtxCreate               => context::create_vdpau;
    pass cuVDPAUCtxCreate_v2            => context::create_vdpau;
    pass cuCtxDestroy                   => context::destroy;
    pass cuCtxDestroy_v2                => context::destroy;
    pass cuCtxDetach                    => context::detach;
    pass cuDevicePrimaryCtxRetain       => context::retain;
    pass cuDevicePrimaryCtxRelease      => context::release_primary;
    pass cuDevicePrimaryCtxRelease_v2   => context::release_primary;
    pass cuDevicePrimaryCtxReset        => context::release_primary;
    pass cuDevicePrimaryCtxReset_v2     => context::release_primary;
    pass cuGreenCtxCreate               => green::create;
    pass cuGreenCtxDestroy              => green::destroy;
    pass cuCtxFromGreenCtx              => green::context;

    pass cuModuleLoad                   => module::load;
    pass cuModuleLoadData               => module::load_data;
    pass cuModuleLoadDataEx             => module::load_data_ex;
    pass cuModuleLoadFatBinary          => module::load_data;
    pass cuLibraryLoadData              => module::library_load;
    pass cuLibraryLoadFromFile          => module::library_load_file;
    pass cuLibraryGetModule             => module::library_module;
    pass cuKernelGetFunction            => module::kernel_function;
    pass cuFuncLoad                     => module::function_load;
    pass cuCtxSetLimit                  => module::set_limit;
    pass cuCtxEnablePeerAccess          => module::enable_peer;
    pass cuModuleUnload                 => module::unload;
    pass cuLibraryUnload                => module::library_unload;

    pass cuLaunchKernel                 => launch::kernel;
    pass cuLaunchKernel_ptsz            => launch::kernel_per_thread;
    pass cuLaunchKernelEx               => launch::kernel_ex;
    pass cuLaunchKernelEx_ptsz          => launch::kernel_ex_per_thread;
    pass cuLaunchCooperativeKernel      => launch::cooperative;
    pass cuLaunchCooperativeKernel_ptsz => launch::cooperative_per_thread;
    pass cuLaunchCooperativeKernelMultiDevice => launch::multi_device;
    pass cuLaunch                       => launch::single;
    pass cuLaunchGrid                   => launch::grid;
    pass cuLaunchGridAsync              => launch::grid_async;

    pass cuGraphLaunch                  => graph::launch;
    pass cuGraphLaunch_ptsz             => graph::launch_per_thread;
    pass cuGraphUpload                  => graph_memory::upload;
    pass cuGraphUpload_ptsz             => graph_memory::upload_per_thread;
    pass cuGraphAddMemAllocNode         => graph_memory::add_allocation;
    pass cuGraphAddNode                 => graph_memory::add_node;
    pass cuGraphAddNode_v2              => graph_memory::add_node_v2;
    pass cuGraphAddNode_v3              => graph_memory::add_node_v2;
    pass cuGraphInstantiate             => graph_memory::instantiate;
    pass cuGraphInstantiate_v2          => graph_memory::instantiate;
    pass cuGraphInstantiateWithFlags    => graph_memory::instantiate_with_flags;
    pass cuGraphInstantiateWithParams   => graph_memory::instantiate_with_params;
    pass cuGraphInstantiateWithParams_ptsz => graph_memory::instantiate_with_params;
    pass cuDeviceGraphMemTrim           => graph_memory::trim;
    pass cuGraphExecDestroy             => graph::exec_destroy;
    pass cuGraphExecUpdate              => graph::exec_update;
    pass cuGraphExecUpdate_v2           => graph::exec_update_v2;
    pass cuStreamBeginCapture           => graph::begin_v1;
    pass cuStreamBeginCapture_ptsz      => graph::begin_v1_per_thread;
    pass cuStreamBeginCapture_v2        => graph::begin;
    pass cuStreamBeginCapture_v2_ptsz   => graph::begin_per_thread;
    pass cuStreamBeginCaptureToGraph    => graph::begin_to_graph;
    pass cuStreamBeginCaptureToGraph_ptsz => graph::begin_to_graph_per_thread;
    pass cuStreamBeginRecaptureToGraph  => graph::begin_again;
    pass cuStreamBeginRecaptureToGraph_ptsz => graph::begin_again_per_thread;
    pass cuStreamBeginCaptureToCig      => graph::begin_to_cig;
    pass cuStreamBeginCaptureToCig_ptsz => graph::begin_to_cig_per_thread;
    pass cuStreamEndCaptureToCig        => graph::end_to_cig;
    pass cuStreamEndCaptureToCig_ptsz   => graph::end_to_cig_per_thread;
    pass cuStreamEndCapture             => graph::end;
    pass cuStreamEndCapture_ptsz        => graph::end_per_thread;
    pass cuStreamDestroy                => graph::stream_destroy;
    pass cuStreamDestroy_v2             => graph::stream_destroy;

    pass cuLaunchHostFunc               => host::function;
    pass cuLaunchHostFunc_ptsz          => host::function_per_thread;
    pass cuLaunchHostFunc_v2            => host::function_v2;
    pass cuLaunchHostFunc_v2_ptsz       => host::function_v2_per_thread;
    pass cuStreamAddCallback            => host::callback;
    pass cuStreamAddCallback_ptsz       => host::callback_per_thread;
    pass cuStreamWaitValue32            => host::wait_value_32;
    pass cuStreamWaitValue32_ptsz       => host::wait_value_32_per_thread;
    pass cuStreamWaitValue32_v2         => host::wait_value_32;
    pass cuStreamWaitValue32_v2_ptsz    => host::wait_value_32_per_thread;
    pass cuStreamWaitValue64            => host::wait_value_64;
    pass cuStreamWaitValue64_ptsz       => host::wait_value_64_per_thread;
    pass cuStreamWaitValue64_v2         => host::wait_value_64;
    pass cuStreamWaitValue64_v2_ptsz    => host::wait_value_64_per_thread;
    pass cuStreamBatchMemOp             => host::batch;
    pass cuStreamBatchMemOp_ptsz        => host::batch_per_thread;
    pass cuStreamBatchMemOp_v2          => host::batch;
    pass cuStreamBatchMemOp_v2_ptsz     => host::batch_per_thread;

    pass cuMemGetInfo                   => device::mem_info_v1;
    pass cuMemGetInfo_v2                => device::mem_info;
    pass cuDeviceTotalMem               => device::total_v1;
    pass cuDeviceTotalMem_v2            => device::total;
    pass nvmlDeviceGetMemoryInfo        => nvml::memory;
    pass nvmlDeviceGetMemoryInfo_v2     => nvml::memory_v2;
    pass nvmlDeviceGetConfComputeProtectedMemoryUsage => nvml::memory;
    pass nvmlDeviceGetBAR1MemoryInfo    => nvml::bar1;
    pass nvmlDeviceGetAttributes        => nvml::attributes;
    pass nvmlDeviceGetAttributes_v2     => nvml::attributes;
    pass nvmlDeviceGetComputeRunningProcesses => nvml::compute_v1;
    pass nvmlDeviceGetComputeRunningProcesses_v2 => nvml::compute;
    pass nvmlDeviceGetComputeRunningProcesses_v3 => nvml::compute;
    pass nvmlDeviceGetGraphicsRunningProcesses => nvml::graphics_v1;
    pass nvmlDeviceGetGraphicsRunningProcesses_v2 => nvml::graphics;
    pass nvmlDeviceGetGraphicsRunningProcesses_v3 => nvml::graphics;
    pass nvmlDeviceGetMPSComputeRunningProcesses => nvml::mps_v1;
    pass nvmlDeviceGetMPSComputeRunningProcesses_v2 => nvml::mps;
    pass nvmlDeviceGetMPSComputeRunningProcesses_v3 => nvml::mps;
    pass nvmlDeviceGetRunningProcessDetailList => nvml::details;
    pass nvmlDeviceGetUtilizationRates  => nvml::rates;
    pass nvmlDeviceGetProcessUtilization => nvml::of_processes;
    pass nvmlDeviceGetProcessesUtilizationInfo => nvml::of_processes_info;
    pass nvmlDeviceGetSamples           => nvml::samples;
    pass nvmlDeviceGetAccountingPids    => nvml::accounting_pids;
    pass nvmlDeviceGetAccountingStats   => nvml::accounting_stats;
    pass nvmlDeviceGetAccountingStats_v2 => nvml::accounting_stats_v2;

    pass cuGetProcAddress               => lookup::proc_address;
    pass cuGetProcAddress_v2            => lookup::proc_address_v2;
    pass cuGetExportTable               => lookup::export_table;
    pass nvmlInternalGetExportTable     => lookup::nvml_export_table;
}

/// The row of a function name, if it is hooked. A null name is nobody's.
pub(crate) fn row(name: *const c_char) -> Option<&'static Row> {
    if name.is_null() {
        return None;
    }
    // Most names end here: two letters decide whether it may be CUDA's or NVML's.
    let first = byte(name, 0);
    if !matches!(first, b'c' | b'n') || !matches!((first, byte(name, 1)), (b'c', b'u') | (b'n', b'v')) {
        return None;
    }
    let at = BY_NAME
        .binary_search_by(|&at| compare(NAMES.get(usize::from(at)).copied().unwrap_or(""), name))
        .ok()?;
    TABLE.get(usize::from(*BY_NAME.get(at)?))
}

/// The hook of the driver's function at `address`.
pub(crate) fn hook_of(address: *mut c_void) -> Option<*mut c_void> {
    TABLE
        .iter()
        .find(|row| row.slot().known() == address)
        .map(Row::hook)
}

/// Finds the driver's functions of all rows of CUDA, so that [`hook_of`] knows their addresses. What the driver does not
/// have is looked for once: libraries ask for hundreds of names.
pub(crate) fn find_all() {
    static FOUND: AtomicBool = AtomicBool::new(false);
    if FOUND.load(Ordering::Acquire) {
        return;
    }
    let rows = || TABLE.iter().filter(|row| row.slot().library() == Library::Cuda);
    let found = rows().filter(|row| !row.slot().get().is_null()).count();
    FOUND.store(found > 0, Ordering::Release);
}

/// Whether a variant of the function that `base` names is hooked: `cuMemAlloc` as `cuMemAlloc_v2`.
pub(crate) fn is_variant_hooked(base: *const c_char) -> bool {
    if base.is_null() {
        return false;
    }
    // SAFETY: not null: the name that the driver has just found.
    let Ok(base) = unsafe { CStr::from_ptr(base) }.to_str() else {
        return false;
    };
    let is_variant = |rest: &str| rest.is_empty() || rest.starts_with("_v") || rest.starts_with("_pt");
    NAMES
        .iter()
        .any(|name| name.strip_prefix(base).is_some_and(is_variant))
}

/// Whether the C string `string` is `name`.
pub(crate) fn is_same(name: &CStr, string: *const c_char) -> bool {
    // SAFETY: not null, so a C string, as its caller's promise to dlsym(3) was.
    !string.is_null() && unsafe { CStr::from_ptr(string) } == name
}

/// Orders a row's name against a C string, without measuring the string first.
fn compare(name: &str, string: *const c_char) -> cmp::Ordering {
    for (at, &expected) in name.as_bytes().iter().enumerate() {
        // The string has not ended before `at`: a null would have differed from a byte of the name.
        let order = expected.cmp(&byte(string, at));
        if order.is_ne() {
            return order;
        }
    }
    if byte(string, name.len()) == 0 {
        cmp::Ordering::Equal
    } else {
        cmp::Ordering::Less
    }
}

fn byte(string: *const c_char, at: usize) -> u8 {
    // SAFETY: callers pass a C string and go no further than its null.
    let place = unsafe { string.add(at) };
    // SAFETY: as above.
    unsafe { place.cast::<u8>().read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_exact_names() {
        for name in NAMES {
            let string = std::ffi::CString::new(name).unwrap();
            let row = row(string.as_ptr()).unwrap();
            assert_eq!(row.slot().name(), string.as_c_str());
        }
        assert!(BY_NAME.is_sorted_by_key(|at| NAMES[usize::from(*at)]));
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in [
            c"",
            c"c",
            c"cu",
            c"cudnnCreate",
            c"cublasCreate_v2",
            c"cuMem",
            c"cuMemAlloc_v2x",
            c"nvmlInit",
            c"malloc",
        ] {
            assert!(row(name.as_ptr()).is_none(), "{name:?}");
        }
        assert!(row(core::ptr::null()).is_none());
        assert!(hook_of(0x1000 as *mut c_void).is_none());
    }

    #[test]
    fn no_driver_is_loaded_for_us() {
        assert!(TABLE.iter().all(|row| row.slot().get().is_null()));
    }
}
