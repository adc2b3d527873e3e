//! Every function that the project hooks or calls has a prototype, in each of its versions.
//!
//! The patterns are the project's list of entry points: `{a,b}` stands for each, `+z` adds `_ptsz`.
#![expect(clippy::unwrap_used, reason = "a malformed table fails the test")]

use vcuda_driver_api::{cuda, nvml};

const PATTERNS: &str = "
cuMemAlloc{,_v2} cuMemAllocPitch{,_v2} cuMemAllocManaged cuMemAllocAsync+z cuMemAllocFromPoolAsync+z cuMemCreate cuMemMap
cuMemMapArrayAsync+z cuMemImportFromShareableHandle cuMemRetainAllocationHandle cuArrayCreate{,_v2}
cuArray3DCreate{,_v2} cuMipmappedArrayCreate cuMemPoolCreate cuMemPoolSetAttribute
cuMemPoolImport{FromShareableHandle,Pointer} cuDeviceSetMemPool cuMemSetMemPool cuIpcOpenMemHandle{,_v2}
cuImportExternalMemory cuExternalMemoryGetMapped{Buffer,MipmappedArray} cuGraphAddMemAllocNode
cuGraphAddNode{,_v2,_v3} cuMulticast{Create,BindMem,BindAddr} cuMulticastBind{Mem,Addr}_v2
cuLogicalEndpointBind{Mem,Addr}
cuMemFree{,_v2} cuMemFreeAsync+z cuMemRelease cuMemUnmap cuArrayDestroy cuMipmappedArrayDestroy cuIpcCloseMemHandle
cuDestroyExternalMemory cuMemPoolDestroy cuMemPoolTrimTo cuDeviceGraphMemTrim cuGraphAddMemFreeNode cuGraphDestroy
cuGraphExecDestroy cuMulticastUnbind cuCtxDestroy{,_v2} cuCtxDetach cuDevicePrimaryCtxRe{lease,set}{,_v2}
cuGreenCtxDestroy cuModuleUnload cuLibraryUnload cuStreamDestroy{,_v2} cuEventDestroy{,_v2}
cuMemGetInfo{,_v2} cuDeviceTotalMem{,_v2} cuMemPoolGetAttribute cuDeviceGetGraphMemAttribute
cuArrayGetMemoryRequirements cuMipmappedArrayGetMemoryRequirements cuMemGetAllocationGranularity cuDeviceGetUuid{,_v2}
cuCtxGetDevice cuDeviceGet{,Default}MemPool cuMemGet{,Default}MemPool
cuLaunchKernel+z cuLaunchKernelEx+z cuLaunchCooperativeKernel+z cuLaunchCooperativeKernelMultiDevice cuLaunch
cuLaunchGrid cuLaunchGridAsync cuGraphLaunch+z
cuMemset{D8,D16,D32,D2D8,D2D16,D2D32}{,_v2,_v2_ptds,Async,Async_ptsz}
cuMemcpy{,Peer,3DPeer}{,_ptds,Async,Async_ptsz} cuMemcpy{HtoD,DtoH,DtoD,DtoA,AtoD,HtoA,AtoH,AtoA,2D,2DUnaligned,3D}{,_v2,_v2_ptds}
cuMemcpy{HtoD,DtoH,DtoD,HtoA,AtoH,2D,3D}Async{,_v2,_v2_ptsz} cuMemcpy{,3D}BatchAsync+z cuMemcpy{,3D}BatchAsync_v2+z
cuMemcpy{,3D}WithAttributesAsync+z cuFabricCpyBatchAsync+z cuMemBatchDecompressAsync+z cuMemPrefetchAsync{,_v2}+z
cuMem{Prefetch,Discard,DiscardAndPrefetch}BatchAsync+z
cuLaunchHostFunc+z cuLaunchHostFunc_v2+z cuStreamAddCallback+z cuStreamWaitValue{32,64}{,_v2}+z cuStreamBatchMemOp{,_v2}+z
cuStreamBeginCapture{,_v2}+z cuStreamBeginCaptureToGraph+z cuStreamEndCapture+z cuStreamBeginRecaptureToGraph+z
cuStream{Begin,End}CaptureToCig+z cuThreadExchangeStreamCaptureMode cuGraphInstantiate{,_v2,WithFlags}
cuGraphInstantiateWithParams+z cuGraphUpload+z cuGraphExecUpdate{,_v2} cuGraphExecKernelNodeSetParams{,_v2}
cuGraphExecNodeSetParams cuGraphExecChildGraphNodeSetParams cuGraphNodeSetEnabled cuGraphAddChildGraphNode cuGraphClone
cuInit cuCtxCreate{,_v2,_v3,_v4} cuDevicePrimaryCtxRetain cuCtxFromGreenCtx cuGreenCtxCreate cuGreenCtxStreamCreate
cuGLCtxCreate{,_v2} cuVDPAUCtxCreate{,_v2} cuCtxSetLimit cuCtxEnablePeerAccess cuModuleLoad{,Data,DataEx,FatBinary}
cuLibraryLoad{Data,FromFile} cuLibraryGetModule cuKernelGetFunction cuFuncLoad cuStreamCreate{,WithPriority}
cuCheckpointProcess{Lock,Checkpoint,Restore,Unlock} cuCheckpointOperationComplete
cuGetProcAddress{,_v2} cuGetExportTable
nvmlInternalGetExportTable nvmlDeviceGet{MemoryInfo,MemoryInfo_v2,RunningProcessDetailList,ProcessUtilization}
nvmlDeviceGet{ProcessesUtilizationInfo,AccountingPids,AccountingStats,AccountingStats_v2}
nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses{,_v2,_v3}
nvmlDeviceGet{UtilizationRates,Samples,FieldValues,BAR1MemoryInfo,Attributes,Attributes_v2} nvmlDevice{Get,Set}MemoryLimits_v1
nvmlInit{,_v2,WithFlags} nvmlShutdown nvmlDeviceGetHandleBy{Index,PciBusId}{,_v2} nvmlDeviceGetHandleBy{Serial,UUID}
nvmlDeviceGetHandleByUUIDV
";

/// Exported by driver 550, but declared in no header of NVIDIA's; `cuGetProcAddress` does not answer them.
const WITHOUT_PROTOTYPE: &[&str] = &["cuEGLApiInit", "cuMemGetAttribute", "cuMemGetAttribute_v2"];

fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return match pattern.strip_suffix("+z") {
            Some(name) => vec![name.to_owned(), format!("{name}_ptsz")],
            None => vec![pattern.to_owned()],
        };
    };
    let (choices, after) = rest.split_once('}').unwrap();
    choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect()
}

#[test]
fn every_entry_point_has_a_prototype() {
    let names: Vec<String> = PATTERNS.split_whitespace().flat_map(expand).collect();
    assert!(names.len() > 300, "the patterns expand: {}", names.len());
    for name in &names {
        let typed = if name.starts_with("nvml") { nvml::TYPED } else { cuda::TYPED };
        assert!(typed.contains(&name.as_str()), "{name} has no prototype");
    }
    for name in WITHOUT_PROTOTYPE {
        assert!(!cuda::TYPED.contains(name), "{name} has a prototype by now");
    }
}
