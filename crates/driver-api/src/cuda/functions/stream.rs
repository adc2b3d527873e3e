//! Streams, events, capture, launches.

list! { stream_list $
    cuCtxRecordEvent: (ctx: CUcontext, event: CUevent);
    cuCtxWaitEvent: (ctx: CUcontext, event: CUevent);
    cuStreamCreate: (stream: *mut CUstream, flags: c_uint);
    cuStreamCreateWithPriority: (stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz: (stream: CUstream,
        stream_cig_capture_params: *mut CUstreamCigCaptureParams);
    cuStreamEndCaptureToCig, cuStreamEndCaptureToCig_ptsz: (stream: CUstream);
    cuStreamGetPriority, cuStreamGetPriority_ptsz: (stream: CUstream, priority: *mut c_int);
    cuStreamGetDevice, cuStreamGetDevice_ptsz: (stream: CUstream, device: *mut CUdevice);
    cuStreamGetFlags, cuStreamGetFlags_ptsz: (stream: CUstream, flags: *mut c_uint);
    cuStreamGetId, cuStreamGetId_ptsz: (stream: CUstream, stream_id: *mut u64);
    cuStreamGetCtx, cuStreamGetCtx_ptsz: (stream: CUstream, pctx: *mut CUcontext);
    cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz: (stream: CUstream, ctx: *mut CUcontext,
        green_ctx: *mut CUgreenCtx);
    cuStreamWaitEvent, cuStreamWaitEvent_ptsz: (stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamAddCallback, cuStreamAddCallback_ptsz: (stream: CUstream, callback: CUstreamCallback,
        user_data: *mut c_void, flags: c_uint);
    cuStreamBeginCapture, cuStreamBeginCapture_ptsz: (stream: CUstream);
    cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz: (stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz: (stream: CUstream,
        mode: CUstreamCaptureMode, graph: CUgraph, callback_func: CUgraphRecaptureCallback,
        user_data: *mut c_void);
    cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz: (stream: CUstream, graph: CUgraph,
        dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData,
        num_dependencies: usize, mode: CUstreamCaptureMode);
    cuThreadExchangeStreamCaptureMode: (mode: *mut CUstreamCaptureMode);
    cuStreamEndCapture, cuStreamEndCapture_ptsz: (stream: CUstream, graph: *mut CUgraph);
    cuStreamIsCapturing, cuStreamIsCapturing_ptsz: (stream: CUstream,
        capture_status: *mut CUstreamCaptureStatus);
    cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz: (stream: CUstream,
        capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64);
    cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz: (stream: CUstream,
        capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64, graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode, num_dependencies_out: *mut usize);
    cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz: (stream: CUstream,
        capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut u64, graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode, edge_data_out: *mut *const CUgraphEdgeData,
        num_dependencies_out: *mut usize);
    cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz: (stream: CUstream,
        dependencies: *mut CUgraphNode, num_dependencies: usize, flags: c_uint);
    cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz: (stream: CUstream,
        dependencies: *mut CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize,
        flags: c_uint);
    cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz: (stream: CUstream, dptr: CUdeviceptr,
        length: usize, flags: c_uint);
    cuStreamQuery, cuStreamQuery_ptsz: (stream: CUstream);
    cuStreamSynchronize, cuStreamSynchronize_ptsz: (stream: CUstream);
    cuStreamDestroy, cuStreamDestroy_v2: (stream: CUstream);
    cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz: (dst: CUstream, src: CUstream);
    cuStreamGetAttribute, cuStreamGetAttribute_ptsz: (stream: CUstream, attr: CUstreamAttrID,
        value_out: *mut CUstreamAttrValue);
    cuStreamSetAttribute, cuStreamSetAttribute_ptsz: (stream: CUstream, attr: CUstreamAttrID,
        value: *const CUstreamAttrValue);
    cuEventCreate: (event: *mut CUevent, flags: c_uint);
    cuEventRecord, cuEventRecord_ptsz: (event: CUevent, stream: CUstream);
    cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz: (event: CUevent, stream: CUstream, flags: c_uint);
    cuEventQuery: (event: CUevent);
    cuEventSynchronize: (event: CUevent);
    cuEventDestroy, cuEventDestroy_v2: (event: CUevent);
    cuEventElapsedTime, cuEventElapsedTime_v2: (milliseconds: *mut f32, start: CUevent, end: CUevent);
    cuStreamWaitValue32, cuStreamWaitValue32_v2, cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2_ptsz: (
        stream: CUstream, addr: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWaitValue64, cuStreamWaitValue64_v2, cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2_ptsz: (
        stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
    cuStreamWriteValue32, cuStreamWriteValue32_v2, cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2_ptsz: (
        stream: CUstream, addr: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWriteValue64, cuStreamWriteValue64_v2, cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2_ptsz: (
        stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
    cuStreamBatchMemOp, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2_ptsz: (
        stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint);
    cuLaunchKernel, cuLaunchKernel_ptsz: (f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint,
        grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint,
        shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void);
    cuLaunchKernelEx, cuLaunchKernelEx_ptsz: (config: *const CUlaunchConfig, f: CUfunction,
        kernel_params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz: (f: CUfunction, grid_dim_x: c_uint,
        grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint,
        block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void);
    cuLaunchHostFunc, cuLaunchHostFunc_ptsz: (stream: CUstream, func: CUhostFn, user_data: *mut c_void);
    cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz: (stream: CUstream, func: CUhostFn,
        user_data: *mut c_void, sync_mode: c_uint);
    cuFuncSetBlockShape: (f: CUfunction, x: c_int, y: c_int, z: c_int);
    cuFuncSetSharedSize: (f: CUfunction, bytes: c_uint);
    cuParamSetSize: (f: CUfunction, num_bytes: c_uint);
    cuParamSeti: (f: CUfunction, offset: c_int, value: c_uint);
    cuParamSetf: (f: CUfunction, offset: c_int, value: f32);
    cuParamSetv: (f: CUfunction, offset: c_int, ptr: *mut c_void, num_bytes: c_uint);
    cuLaunch: (f: CUfunction);
    cuLaunchGrid: (f: CUfunction, grid_width: c_int, grid_height: c_int);
    cuLaunchGridAsync: (f: CUfunction, grid_width: c_int, grid_height: c_int, stream: CUstream);
    cuLaunchCooperativeKernelMultiDevice: (launch_params_list: *mut CUDA_LAUNCH_PARAMS,
        num_devices: c_uint, flags: c_uint);
    cuOccupancyMaxActiveBlocksPerMultiprocessor: (num_blocks: *mut c_int, func: CUfunction,
        block_size: c_int, dynamic_s_mem_size: usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: (num_blocks: *mut c_int, func: CUfunction,
        block_size: c_int, dynamic_s_mem_size: usize, flags: c_uint);
    cuOccupancyMaxPotentialBlockSize: (min_grid_size: *mut c_int, block_size: *mut c_int,
        func: CUfunction, block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize,
        dynamic_s_mem_size: usize, block_size_limit: c_int);
    cuOccupancyMaxPotentialBlockSizeWithFlags: (min_grid_size: *mut c_int, block_size: *mut c_int,
        func: CUfunction, block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize,
        dynamic_s_mem_size: usize, block_size_limit: c_int, flags: c_uint);
    cuOccupancyAvailableDynamicSMemPerBlock: (dynamic_smem_size: *mut usize, func: CUfunction,
        num_blocks: c_int, block_size: c_int);
    cuOccupancyMaxPotentialClusterSize: (cluster_size: *mut c_int, func: CUfunction,
        config: *const CUlaunchConfig);
    cuOccupancyMaxActiveClusters: (num_clusters: *mut c_int, func: CUfunction,
        config: *const CUlaunchConfig);
    cuStreamGetGreenCtx: (stream: CUstream, ctx: *mut CUgreenCtx);
    cuStreamGetDevResource, cuStreamGetDevResource_ptsz: (stream: CUstream, resource: *mut CUdevResource,
        kind: CUdevResourceType);
}
