//! Functions that only pass the gate of a suspendable tenant, and that the shim leaves alone otherwise.
//!
//! On an H200 with driver 580 a process whose GPU state is away waits in most functions, and ends with SIGSEGV in others
//! (docs/evidence.md, "Checkpoints of a process"). Only some were tried, so every function with a prototype is here, except
//! those that answer from what never leaves: errors, versions, properties of devices, which context is current.

/// Adds the rows of these functions to the table.
macro_rules! hooks_and_gated {
    ($($rows:tt)*) => {
        $crate::hooks::table::hooks! {
            gate {
                // Streams.
                cuGreenCtxGetDevResource cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuGreenCtxStreamCreate
                cuGreenCtxGetId cuCtxRecordEvent cuCtxWaitEvent cuStreamCreate cuStreamCreateWithPriority
                cuStreamGetPriority cuStreamGetPriority_ptsz cuStreamGetDevice cuStreamGetDevice_ptsz
                cuStreamGetFlags cuStreamGetFlags_ptsz cuStreamGetId cuStreamGetId_ptsz cuStreamGetCtx
                cuStreamGetCtx_ptsz cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz cuStreamWaitEvent
                cuStreamWaitEvent_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz cuStreamGetCaptureInfo
                cuStreamGetCaptureInfo_ptsz cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz
                cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz cuStreamUpdateCaptureDependencies
                cuStreamUpdateCaptureDependencies_ptsz cuStreamUpdateCaptureDependencies_v2
                cuStreamUpdateCaptureDependencies_v2_ptsz cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz
                cuStreamQuery cuStreamQuery_ptsz cuStreamCopyAttributes cuStreamCopyAttributes_ptsz
                cuStreamGetAttribute cuStreamGetAttribute_ptsz cuStreamSetAttribute cuStreamSetAttribute_ptsz
                cuStreamWriteValue32 cuStreamWriteValue32_v2 cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2_ptsz
                cuStreamWriteValue64 cuStreamWriteValue64_v2 cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2_ptsz
                cuStreamGetGreenCtx cuStreamGetDevResource cuStreamGetDevResource_ptsz
                // Events.
                cuEventCreate cuEventRecord cuEventRecord_ptsz cuEventRecordWithFlags cuEventRecordWithFlags_ptsz
                cuEventQuery cuEventDestroy cuEventDestroy_v2 cuEventElapsedTime cuEventElapsedTime_v2
                // Graphs.
                cuGraphCreate cuGraphAddKernelNode cuGraphAddKernelNode_v2 cuGraphKernelNodeGetParams
                cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2
                cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphAddMemsetNode
                cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphAddHostNode cuGraphHostNodeGetParams
                cuGraphHostNodeSetParams cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph cuGraphAddEmptyNode
                cuGraphAddEventRecordNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent
                cuGraphAddEventWaitNode cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent
                cuGraphMemAllocNodeGetParams cuGraphAddMemFreeNode cuGraphMemFreeNodeGetParams
                cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute cuGraphClone cuGraphNodeFindInClone
                cuGraphNodeGetType cuGraphNodeGetContainingGraph cuGraphNodeGetLocalId cuGraphNodeGetToolsId
                cuGraphGetId cuGraphExecGetId cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges
                cuGraphGetEdges_v2 cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2
                cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2 cuGraphAddDependencies
                cuGraphAddDependencies_v2 cuGraphRemoveDependencies cuGraphRemoveDependencies_v2 cuGraphDestroyNode
                cuGraphExecGetFlags cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2
                cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuGraphExecHostNodeSetParams
                cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent
                cuGraphExecEventWaitNodeSetEvent cuGraphNodeSetEnabled cuGraphNodeGetEnabled cuGraphDestroy
                cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
                cuGraphReleaseUserObject cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute
                cuGraphKernelNodeSetAttribute cuGraphDebugDotPrint cuGraphNodeSetParams cuGraphNodeGetParams
                cuGraphExecNodeSetParams
                // Memory, arrays and pointers.
                cuDeviceSetMemPool cuDeviceGetMemPool cuDeviceGetDefaultMemPool cuMemGetAddressRange
                cuMemGetAddressRange_v2 cuMemAllocHost cuMemAllocHost_v2 cuMemFreeHost cuMemHostAlloc
                cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2 cuMemHostGetFlags cuMemHostRegister
                cuMemHostRegister_v2 cuMemHostUnregister cuArrayGetDescriptor cuArrayGetDescriptor_v2
                cuArrayGetSparseProperties cuMipmappedArrayGetSparseProperties cuArrayGetMemoryRequirements
                cuMipmappedArrayGetMemoryRequirements cuArrayGetPlane cuArray3DGetDescriptor
                cuArray3DGetDescriptor_v2 cuMipmappedArrayGetLevel cuMemAddressReserve cuMemAddressFree
                cuMemSetAccess cuMemGetAccess cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle
                cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolGetAccess cuMemGetDefaultMemPool cuMemGetMemPool
                cuMemSetMemPool cuMemPoolExportToShareableHandle cuMulticastGetGranularity cuPointerGetAttribute
                cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz
                cuMemAdvise cuMemAdvise_v2 cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync_ptsz
                cuMemRangeGetAttribute cuMemRangeGetAttributes cuPointerSetAttribute cuPointerGetAttributes
                // Contexts, code and the driver itself.
                cuInit cuFlushGPUDirectRDMAWrites cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2
                cuDevicePrimaryCtxGetState cuCtxGetFlags cuCtxSetFlags cuCtxGetId cuCtxGetLimit cuCtxGetCacheConfig
                cuCtxSetCacheConfig cuCtxGetStreamPriorityRange cuCtxResetPersistingL2Cache cuCtxGetExecAffinity
                cuCtxAttach cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuModuleGetFunction
                cuModuleGetFunctionCount cuModuleEnumerateFunctions cuModuleGetGlobal cuModuleGetGlobal_v2
                cuLinkCreate cuLinkCreate_v2 cuLinkAddData cuLinkAddData_v2 cuLinkAddFile cuLinkAddFile_v2
                cuLinkComplete cuLinkDestroy cuLibraryGetKernel cuLibraryGetKernelCount cuLibraryEnumerateKernels
                cuKernelGetLibrary cuLibraryGetGlobal cuLibraryGetManaged cuLibraryGetUnifiedFunction
                cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig cuKernelGetName
                cuKernelGetParamInfo cuKernelGetParamCount cuFuncGetAttribute cuFuncSetAttribute
                cuFuncSetCacheConfig cuFuncGetModule cuFuncGetName cuFuncGetParamInfo cuFuncGetParamCount
                cuFuncIsLoaded cuFuncSetSharedMemConfig cuCtxDisablePeerAccess cuCtxGetDevResource cuProfilerStart
                cuProfilerStop cuFuncSetBlockShape cuFuncSetSharedSize cuParamSetSize cuParamSeti cuParamSetf
                cuParamSetv cuOccupancyMaxActiveBlocksPerMultiprocessor
                cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
                cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyMaxPotentialClusterSize
                cuOccupancyMaxActiveClusters cuOccupancyAvailableDynamicSMemPerBlock
                // Textures and surfaces.
                cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc
                cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc cuSurfObjectCreate
                cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuModuleGetSurfRef cuModuleGetTexRef
                cuParamSetTexRef cuTexRefCreate cuTexRefDestroy cuTexRefGetAddress
                cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor
                cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
                cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
                cuTexRefGetMipmappedArray cuTexRefSetAddress cuTexRefSetAddress2D
                cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode
                cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode
                cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode
                cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray
                cuSurfRefGetArray cuSurfRefSetArray
                // External semaphores, events of other processes, memory without accounts.
                cuDestroyExternalSemaphore cuImportExternalSemaphore cuSignalExternalSemaphoresAsync
                cuSignalExternalSemaphoresAsync_ptsz cuWaitExternalSemaphoresAsync
                cuWaitExternalSemaphoresAsync_ptsz cuIpcGetEventHandle cuIpcOpenEventHandle
                cuMemBatchDecompressAsync cuMemBatchDecompressAsync_ptsz cuMemDiscardBatchAsync
                cuMemDiscardBatchAsync_ptsz cuMemDiscardAndPrefetchBatchAsync
                cuMemDiscardAndPrefetchBatchAsync_ptsz cuMemGetLocationInfo cuFabricCpyBatchAsync
                cuFabricCpyBatchAsync_ptsz cuLogicalEndpointBindAddr cuLogicalEndpointBindMem
                // Nodes of graphs with semaphores, memory operations and conditions.
                cuGraphConditionalHandleCreate cuGraphNodeSetParams_v2 cuGraphAddBatchMemOpNode
                cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode
                cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams
                cuGraphExecBatchMemOpNodeSetParams cuGraphExecExternalSemaphoresSignalNodeSetParams
                cuGraphExecExternalSemaphoresWaitNodeSetParams
                cuGraphExternalSemaphoresSignalNodeGetParams
                cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
                cuGraphExternalSemaphoresWaitNodeSetParams
                // Resources of graphics interfaces.
                cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage
                cuGraphicsMapResources cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedEglFrame
                cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer
                cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags
                cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray
                cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz cuGraphicsUnregisterResource
                cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterVideoSurface cuGLInit
                cuGLMapBufferObject cuGLMapBufferObjectAsync cuGLMapBufferObjectAsync_v2
                cuGLMapBufferObjectAsync_v2_ptsz cuGLMapBufferObject_v2 cuGLMapBufferObject_v2_ptds
                cuGLRegisterBufferObject cuGLSetBufferObjectMapFlags cuGLUnmapBufferObject
                cuGLUnmapBufferObjectAsync cuGLUnregisterBufferObject
            }
            $($rows)*
        }
    };
}
pub(crate) use hooks_and_gated;
