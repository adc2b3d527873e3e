//! Start, devices, contexts, modules, libraries, functions, look-up.

list! { device_list $
    cuGetErrorString: (error: CUresult, str: *mut *const c_char);
    cuGetErrorName: (error: CUresult, str: *mut *const c_char);
    cuInit: (flags: c_uint);
    cuDriverGetVersion: (driver_version: *mut c_int);
    cuDeviceGet: (device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetCount: (count: *mut c_int);
    cuDeviceGetName: (name: *mut c_char, len: c_int, dev: CUdevice);
    cuDeviceGetUuid, cuDeviceGetUuid_v2: (uuid: *mut CUuuid, dev: CUdevice);
    cuDeviceGetLuid: (luid: *mut c_char, device_node_mask: *mut c_uint, dev: CUdevice);
    cuDeviceTotalMem: (bytes: *mut c_uint, dev: CUdevice);
    cuDeviceTotalMem_v2: (bytes: *mut usize, dev: CUdevice);
    cuDeviceGetAttribute: (pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice);
    cuDeviceGetHostAtomicCapabilities: (capabilities: *mut c_uint, operations: *const CUatomicOperation,
        count: c_uint, dev: CUdevice);
    cuDeviceGetExecAffinitySupport: (pi: *mut c_int, kind: CUexecAffinityType, dev: CUdevice);
    cuFlushGPUDirectRDMAWrites: (target: CUflushGPUDirectRDMAWritesTarget,
        scope: CUflushGPUDirectRDMAWritesScope);
    cuDeviceGetProperties: (prop: *mut CUdevprop, dev: CUdevice);
    cuDeviceComputeCapability: (major: *mut c_int, minor: *mut c_int, dev: CUdevice);
    cuDevicePrimaryCtxRetain: (pctx: *mut CUcontext, dev: CUdevice);
    cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2: (dev: CUdevice);
    cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2: (dev: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxGetState: (dev: CUdevice, flags: *mut c_uint, active: *mut c_int);
    cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2: (dev: CUdevice);
    cuCtxCreate, cuCtxCreate_v2: (pctx: *mut CUcontext, flags: c_uint, dev: CUdevice);
    cuCtxCreate_v3: (pctx: *mut CUcontext, params_array: *mut CUexecAffinityParam, num_params: c_int,
        flags: c_uint, dev: CUdevice);
    cuCtxCreate_v4: (pctx: *mut CUcontext, ctx_create_params: *mut CUctxCreateParams, flags: c_uint,
        dev: CUdevice);
    cuCtxDestroy, cuCtxDestroy_v2: (ctx: CUcontext);
    cuCtxPushCurrent, cuCtxPushCurrent_v2: (ctx: CUcontext);
    cuCtxPopCurrent, cuCtxPopCurrent_v2: (pctx: *mut CUcontext);
    cuCtxSetCurrent: (ctx: CUcontext);
    cuCtxGetCurrent: (pctx: *mut CUcontext);
    cuCtxGetDevice: (device: *mut CUdevice);
    cuCtxGetDevice_v2: (device: *mut CUdevice, ctx: CUcontext);
    cuCtxGetFlags: (flags: *mut c_uint);
    cuCtxSetFlags: (flags: c_uint);
    cuCtxGetId: (ctx: CUcontext, ctx_id: *mut u64);
    cuCtxSynchronize: ();
    cuCtxSynchronize_v2: (ctx: CUcontext);
    cuCtxSetLimit: (limit: CUlimit, value: usize);
    cuCtxGetLimit: (pvalue: *mut usize, limit: CUlimit);
    cuCtxGetCacheConfig: (pconfig: *mut CUfunc_cache);
    cuCtxSetCacheConfig: (config: CUfunc_cache);
    cuCtxGetApiVersion: (ctx: CUcontext, version: *mut c_uint);
    cuCtxGetStreamPriorityRange: (least_priority: *mut c_int, greatest_priority: *mut c_int);
    cuCtxResetPersistingL2Cache: ();
    cuCtxGetExecAffinity: (exec_affinity: *mut CUexecAffinityParam, kind: CUexecAffinityType);
    cuCtxAttach: (pctx: *mut CUcontext, flags: c_uint);
    cuCtxDetach: (ctx: CUcontext);
    cuCtxGetSharedMemConfig: (config: *mut CUsharedconfig);
    cuCtxSetSharedMemConfig: (config: CUsharedconfig);
    cuModuleLoad: (module: *mut CUmodule, fname: *const c_char);
    cuModuleLoadData: (module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx: (module: *mut CUmodule, image: *const c_void, num_options: c_uint,
        options: *mut CUjit_option, option_values: *mut *mut c_void);
    cuModuleLoadFatBinary: (module: *mut CUmodule, fat_cubin: *const c_void);
    cuModuleUnload: (hmod: CUmodule);
    cuModuleGetLoadingMode: (mode: *mut CUmoduleLoadingMode);
    cuModuleGetFunction: (hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char);
    cuModuleGetFunctionCount: (count: *mut c_uint, module: CUmodule);
    cuModuleEnumerateFunctions: (functions: *mut CUfunction, num_functions: c_uint, module: CUmodule);
    cuModuleGetGlobal: (dptr: *mut CUdeviceptr_v1, bytes: *mut c_uint, hmod: CUmodule, name: *const c_char);
    cuModuleGetGlobal_v2: (dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char);
    cuLinkCreate, cuLinkCreate_v2: (num_options: c_uint, options: *mut CUjit_option,
        option_values: *mut *mut c_void, state_out: *mut CUlinkState);
    cuLinkAddData, cuLinkAddData_v2: (state: CUlinkState, kind: CUjitInputType, data: *mut c_void,
        size: usize, name: *const c_char, num_options: c_uint, options: *mut CUjit_option,
        option_values: *mut *mut c_void);
    cuLinkAddFile, cuLinkAddFile_v2: (state: CUlinkState, kind: CUjitInputType, path: *const c_char,
        num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void);
    cuLinkComplete: (state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
    cuLinkDestroy: (state: CUlinkState);
    cuLibraryLoadData: (library: *mut CUlibrary, code: *const c_void, jit_options: *mut CUjit_option,
        jit_options_values: *mut *mut c_void, num_jit_options: c_uint,
        library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void,
        num_library_options: c_uint);
    cuLibraryLoadFromFile: (library: *mut CUlibrary, file_name: *const c_char,
        jit_options: *mut CUjit_option, jit_options_values: *mut *mut c_void, num_jit_options: c_uint,
        library_options: *mut CUlibraryOption, library_option_values: *mut *mut c_void,
        num_library_options: c_uint);
    cuLibraryUnload: (library: CUlibrary);
    cuLibraryGetKernel: (kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    cuLibraryGetKernelCount: (count: *mut c_uint, lib: CUlibrary);
    cuLibraryEnumerateKernels: (kernels: *mut CUkernel, num_kernels: c_uint, lib: CUlibrary);
    cuLibraryGetModule: (module: *mut CUmodule, library: CUlibrary);
    cuKernelGetFunction: (func: *mut CUfunction, kernel: CUkernel);
    cuKernelGetLibrary: (lib: *mut CUlibrary, kernel: CUkernel);
    cuLibraryGetGlobal: (dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary,
        name: *const c_char);
    cuLibraryGetManaged: (dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary,
        name: *const c_char);
    cuLibraryGetUnifiedFunction: (fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char);
    cuKernelGetAttribute: (pi: *mut c_int, attrib: CUfunction_attribute, kernel: CUkernel, dev: CUdevice);
    cuKernelSetAttribute: (attrib: CUfunction_attribute, val: c_int, kernel: CUkernel, dev: CUdevice);
    cuKernelSetCacheConfig: (kernel: CUkernel, config: CUfunc_cache, dev: CUdevice);
    cuKernelGetName: (name: *mut *const c_char, hfunc: CUkernel);
    cuKernelGetParamInfo: (kernel: CUkernel, param_index: usize, param_offset: *mut usize,
        param_size: *mut usize);
    cuKernelGetParamCount: (kernel: CUkernel, param_count: *mut usize);
    cuDeviceGetByPCIBusId: (dev: *mut CUdevice, pci_bus_id: *const c_char);
    cuDeviceGetPCIBusId: (pci_bus_id: *mut c_char, len: c_int, dev: CUdevice);
    cuFuncGetAttribute: (pi: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction);
    cuFuncSetAttribute: (hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int);
    cuFuncSetCacheConfig: (hfunc: CUfunction, config: CUfunc_cache);
    cuFuncGetModule: (hmod: *mut CUmodule, hfunc: CUfunction);
    cuFuncGetName: (name: *mut *const c_char, hfunc: CUfunction);
    cuFuncGetParamInfo: (func: CUfunction, param_index: usize, param_offset: *mut usize,
        param_size: *mut usize);
    cuFuncGetParamCount: (func: CUfunction, param_count: *mut usize);
    cuFuncIsLoaded: (state: *mut CUfunctionLoadingState, function: CUfunction);
    cuFuncLoad: (function: CUfunction);
    cuFuncSetSharedMemConfig: (hfunc: CUfunction, config: CUsharedconfig);
    cuDeviceCanAccessPeer: (can_access_peer: *mut c_int, dev: CUdevice, peer_dev: CUdevice);
    cuCtxEnablePeerAccess: (peer_context: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess: (peer_context: CUcontext);
    cuDeviceGetP2PAttribute: (value: *mut c_int, attrib: CUdevice_P2PAttribute, src_device: CUdevice,
        dst_device: CUdevice);
    cuDeviceGetP2PAtomicCapabilities: (capabilities: *mut c_uint, operations: *const CUatomicOperation,
        count: c_uint, src_device: CUdevice, dst_device: CUdevice);
    cuGetProcAddress: (symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64);
    cuGetProcAddress_v2: (symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64,
        symbol_status: *mut CUdriverProcAddressQueryResult);
    cuGetExportTable: (export_table: *mut *const c_void, export_table_id: *const CUuuid);
    cuGreenCtxCreate: (ctx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint);
    cuGreenCtxDestroy: (ctx: CUgreenCtx);
    cuCtxFromGreenCtx: (context: *mut CUcontext, ctx: CUgreenCtx);
    cuDeviceGetDevResource: (device: CUdevice, resource: *mut CUdevResource, kind: CUdevResourceType);
    cuCtxGetDevResource: (ctx: CUcontext, resource: *mut CUdevResource, kind: CUdevResourceType);
    cuGreenCtxGetDevResource: (ctx: CUgreenCtx, resource: *mut CUdevResource, kind: CUdevResourceType);
    cuDevSmResourceSplitByCount: (result: *mut CUdevResource, nb_groups: *mut c_uint,
        input: *const CUdevResource, remainder: *mut CUdevResource, flags: c_uint, min_count: c_uint);
    cuDevSmResourceSplit: (result: *mut CUdevResource, nb_groups: c_uint, input: *const CUdevResource,
        remainder: *mut CUdevResource, flags: c_uint, group_params: *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS);
    cuDevResourceGenerateDesc: (desc: *mut CUdevResourceDesc, resources: *mut CUdevResource,
        nb_resources: c_uint);
    cuGreenCtxRecordEvent: (ctx: CUgreenCtx, event: CUevent);
    cuGreenCtxWaitEvent: (ctx: CUgreenCtx, event: CUevent);
    cuGreenCtxStreamCreate: (stream: *mut CUstream, green_ctx: CUgreenCtx, flags: c_uint, priority: c_int);
    cuGreenCtxGetId: (green_ctx: CUgreenCtx, green_ctx_id: *mut u64);
    cuCheckpointProcessGetRestoreThreadId: (pid: c_int, tid: *mut c_int);
    cuCheckpointProcessGetState: (pid: c_int, state: *mut CUprocessState);
    cuCheckpointProcessLock: (pid: c_int, args: *mut CUcheckpointLockArgs);
    cuCheckpointProcessCheckpoint: (pid: c_int, args: *mut CUcheckpointCheckpointArgs);
    cuCheckpointProcessRestore: (pid: c_int, args: *mut CUcheckpointRestoreArgs);
    cuCheckpointOperationComplete: (handle: CUcheckpointOperationHandle);
    cuCheckpointProcessUnlock: (pid: c_int, args: *mut CUcheckpointUnlockArgs);
    cuGLCtxCreate, cuGLCtxCreate_v2: (ctx: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2: (ctx: *mut CUcontext, flags: c_uint, device: CUdevice,
        vdp_device: c_uint, vdp_get_proc_address: *mut c_void);
    cuProfilerStart: ();
    cuProfilerStop: ();
}
