//! Textures, surfaces, external semaphores, graphics interoperability. Structures and enumerations of which no code here reads a
//! member are `c_void` behind pointers, and `c_uint`.

list! { interop_list $
    cuTexObjectCreate: (tex_object: *mut CUtexObject, res_desc: *const c_void, tex_desc: *const c_void,
        res_view_desc: *const c_void);
    cuTexObjectDestroy: (tex_object: CUtexObject);
    cuTexObjectGetResourceDesc: (res_desc: *mut c_void, tex_object: CUtexObject);
    cuTexObjectGetResourceViewDesc: (res_view_desc: *mut c_void, tex_object: CUtexObject);
    cuTexObjectGetTextureDesc: (tex_desc: *mut c_void, tex_object: CUtexObject);
    cuSurfObjectCreate: (surf_object: *mut CUsurfObject, res_desc: *const c_void);
    cuSurfObjectDestroy: (surf_object: CUsurfObject);
    cuSurfObjectGetResourceDesc: (res_desc: *mut c_void, surf_object: CUsurfObject);
    cuModuleGetSurfRef: (surf_ref: *mut CUsurfref, hmod: CUmodule, name: *const c_char);
    cuModuleGetTexRef: (tex_ref: *mut CUtexref, hmod: CUmodule, name: *const c_char);
    cuParamSetTexRef: (hfunc: CUfunction, texunit: c_int, tex_ref: CUtexref);
    cuTexRefCreate: (tex_ref: *mut CUtexref);
    cuTexRefDestroy: (tex_ref: CUtexref);
    cuTexRefGetAddress: (pdptr: *mut CUdeviceptr_v1, tex_ref: CUtexref);
    cuTexRefGetAddressMode: (pam: *mut c_uint, tex_ref: CUtexref, dim: c_int);
    cuTexRefGetAddress_v2: (pdptr: *mut CUdeviceptr, tex_ref: CUtexref);
    cuTexRefGetArray: (array: *mut CUarray, tex_ref: CUtexref);
    cuTexRefGetBorderColor: (border_color: *mut f32, tex_ref: CUtexref);
    cuTexRefGetFilterMode: (pfm: *mut c_uint, tex_ref: CUtexref);
    cuTexRefGetFlags: (flags: *mut c_uint, tex_ref: CUtexref);
    cuTexRefGetFormat: (format: *mut CUarray_format, num_channels: *mut c_int, tex_ref: CUtexref);
    cuTexRefGetMaxAnisotropy: (pmax_aniso: *mut c_int, tex_ref: CUtexref);
    cuTexRefGetMipmapFilterMode: (pfm: *mut c_uint, tex_ref: CUtexref);
    cuTexRefGetMipmapLevelBias: (pbias: *mut f32, tex_ref: CUtexref);
    cuTexRefGetMipmapLevelClamp: (pmin_mipmap_level_clamp: *mut f32, pmax_mipmap_level_clamp: *mut f32,
        tex_ref: CUtexref);
    cuTexRefGetMipmappedArray: (mipmapped_array: *mut CUmipmappedArray, tex_ref: CUtexref);
    cuTexRefSetAddress: (byte_offset: *mut c_uint, tex_ref: CUtexref, dptr: CUdeviceptr_v1, bytes: c_uint);
    cuTexRefSetAddress2D: (tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR_v1, dptr: CUdeviceptr_v1,
        pitch: c_uint);
    cuTexRefSetAddress2D_v2: (tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr,
        pitch: usize);
    cuTexRefSetAddress2D_v3: (tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr,
        pitch: usize);
    cuTexRefSetAddressMode: (tex_ref: CUtexref, dim: c_int, am: c_uint);
    cuTexRefSetAddress_v2: (byte_offset: *mut usize, tex_ref: CUtexref, dptr: CUdeviceptr, bytes: usize);
    cuTexRefSetArray: (tex_ref: CUtexref, array: CUarray, flags: c_uint);
    cuTexRefSetBorderColor: (tex_ref: CUtexref, border_color: *mut f32);
    cuTexRefSetFilterMode: (tex_ref: CUtexref, fm: c_uint);
    cuTexRefSetFlags: (tex_ref: CUtexref, flags: c_uint);
    cuTexRefSetFormat: (tex_ref: CUtexref, fmt: CUarray_format, num_packed_components: c_int);
    cuTexRefSetMaxAnisotropy: (tex_ref: CUtexref, max_aniso: c_uint);
    cuTexRefSetMipmapFilterMode: (tex_ref: CUtexref, fm: c_uint);
    cuTexRefSetMipmapLevelBias: (tex_ref: CUtexref, bias: f32);
    cuTexRefSetMipmapLevelClamp: (tex_ref: CUtexref, min_mipmap_level_clamp: f32,
        max_mipmap_level_clamp: f32);
    cuTexRefSetMipmappedArray: (tex_ref: CUtexref, mipmapped_array: CUmipmappedArray, flags: c_uint);
    cuSurfRefGetArray: (array: *mut CUarray, surf_ref: CUsurfref);
    cuSurfRefSetArray: (surf_ref: CUsurfref, array: CUarray, flags: c_uint);
    cuDestroyExternalSemaphore: (ext_sem: CUexternalSemaphore);
    cuImportExternalSemaphore: (ext_sem_out: *mut CUexternalSemaphore, sem_handle_desc: *const c_void);
    cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz:
        (ext_sem_array: *const CUexternalSemaphore, params_array: *const c_void, num_ext_sems: c_uint,
        stream: CUstream);
    cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz:
        (ext_sem_array: *const CUexternalSemaphore, params_array: *const c_void, num_ext_sems: c_uint,
        stream: CUstream);
    cuGraphAddBatchMemOpNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const c_void);
    cuGraphAddExternalSemaphoresSignalNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const c_void);
    cuGraphAddExternalSemaphoresWaitNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const c_void);
    cuGraphBatchMemOpNodeGetParams: (node: CUgraphNode, node_params_out: *mut c_void);
    cuGraphBatchMemOpNodeSetParams: (node: CUgraphNode, node_params: *const c_void);
    cuGraphExecBatchMemOpNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *const c_void);
    cuGraphExecExternalSemaphoresSignalNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *const c_void);
    cuGraphExecExternalSemaphoresWaitNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *const c_void);
    cuGraphExternalSemaphoresSignalNodeGetParams: (node: CUgraphNode, params_out: *mut c_void);
    cuGraphExternalSemaphoresSignalNodeSetParams: (node: CUgraphNode, node_params: *const c_void);
    cuGraphExternalSemaphoresWaitNodeGetParams: (node: CUgraphNode, params_out: *mut c_void);
    cuGraphExternalSemaphoresWaitNodeSetParams: (node: CUgraphNode, node_params: *const c_void);
    cuGraphicsEGLRegisterImage: (cuda_resource: *mut CUgraphicsResource, image: *mut c_void, flags: c_uint);
    cuGraphicsGLRegisterBuffer: (cuda_resource: *mut CUgraphicsResource, buffer: c_uint, flags: c_uint);
    cuGraphicsGLRegisterImage: (cuda_resource: *mut CUgraphicsResource, image: c_uint, target: c_uint,
        flags: c_uint);
    cuGraphicsMapResources, cuGraphicsMapResources_ptsz: (count: c_uint, resources: *mut CUgraphicsResource,
        stream: CUstream);
    cuGraphicsResourceGetMappedEglFrame: (egl_frame: *mut c_void, resource: CUgraphicsResource,
        index: c_uint, mip_level: c_uint);
    cuGraphicsResourceGetMappedMipmappedArray: (mipmapped_array: *mut CUmipmappedArray,
        resource: CUgraphicsResource);
    cuGraphicsResourceGetMappedPointer: (dev_ptr: *mut CUdeviceptr_v1, size: *mut c_uint,
        resource: CUgraphicsResource);
    cuGraphicsResourceGetMappedPointer_v2: (dev_ptr: *mut CUdeviceptr, size: *mut usize,
        resource: CUgraphicsResource);
    cuGraphicsResourceSetMapFlags: (resource: CUgraphicsResource, flags: c_uint);
    cuGraphicsResourceSetMapFlags_v2: (resource: CUgraphicsResource, flags: c_uint);
    cuGraphicsSubResourceGetMappedArray: (array: *mut CUarray, resource: CUgraphicsResource,
        array_index: c_uint, mip_level: c_uint);
    cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz: (count: c_uint,
        resources: *mut CUgraphicsResource, stream: CUstream);
    cuGraphicsUnregisterResource: (resource: CUgraphicsResource);
    cuGraphicsVDPAURegisterOutputSurface: (cuda_resource: *mut CUgraphicsResource, vdp_surface: u32,
        flags: c_uint);
    cuGraphicsVDPAURegisterVideoSurface: (cuda_resource: *mut CUgraphicsResource, vdp_surface: u32,
        flags: c_uint);
    cuGLInit: ();
    cuGLMapBufferObject: (dptr: *mut CUdeviceptr_v1, size: *mut c_uint, buffer: c_uint);
    cuGLMapBufferObjectAsync: (dptr: *mut CUdeviceptr_v1, size: *mut c_uint, buffer: c_uint,
        stream: CUstream);
    cuGLMapBufferObjectAsync_v2, cuGLMapBufferObjectAsync_v2_ptsz: (dptr: *mut CUdeviceptr,
        size: *mut usize, buffer: c_uint, stream: CUstream);
    cuGLMapBufferObject_v2, cuGLMapBufferObject_v2_ptds: (dptr: *mut CUdeviceptr, size: *mut usize,
        buffer: c_uint);
    cuGLRegisterBufferObject: (buffer: c_uint);
    cuGLSetBufferObjectMapFlags: (buffer: c_uint, flags: c_uint);
    cuGLUnmapBufferObject: (buffer: c_uint);
    cuGLUnmapBufferObjectAsync: (buffer: c_uint, stream: CUstream);
    cuGLUnregisterBufferObject: (buffer: c_uint);
}
