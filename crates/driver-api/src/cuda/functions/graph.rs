//! Graphs.

list! { graph_list $
    cuGraphCreate: (graph: *mut CUgraph, flags: c_uint);
    cuGraphAddKernelNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize,
        node_params: *const CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphAddKernelNode_v2: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize,
        node_params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetParams: (node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphKernelNodeGetParams_v2: (node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeSetParams: (node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphKernelNodeSetParams_v2: (node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphAddMemcpyNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, copy_params: *const CUDA_MEMCPY3D,
        ctx: CUcontext);
    cuGraphMemcpyNodeGetParams: (node: CUgraphNode, node_params: *mut CUDA_MEMCPY3D);
    cuGraphMemcpyNodeSetParams: (node: CUgraphNode, node_params: *const CUDA_MEMCPY3D);
    cuGraphAddMemsetNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize,
        memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext);
    cuGraphMemsetNodeGetParams: (node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS);
    cuGraphMemsetNodeSetParams: (node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS);
    cuGraphAddHostNode: (graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        num_dependencies: usize, node_params: *const CUDA_HOST_NODE_PARAMS);
    cuGraphHostNodeGetParams: (node: CUgraphNode, node_params: *mut CUDA_HOST_NODE_PARAMS);
    cuGraphHostNodeSetParams: (node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS);
    cuGraphAddChildGraphNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, child_graph: CUgraph);
    cuGraphChildGraphNodeGetGraph: (node: CUgraphNode, graph: *mut CUgraph);
    cuGraphAddEmptyNode: (graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        num_dependencies: usize);
    cuGraphAddEventRecordNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, event: CUevent);
    cuGraphEventRecordNodeGetEvent: (node: CUgraphNode, event_out: *mut CUevent);
    cuGraphEventRecordNodeSetEvent: (node: CUgraphNode, event: CUevent);
    cuGraphAddEventWaitNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, event: CUevent);
    cuGraphEventWaitNodeGetEvent: (node: CUgraphNode, event_out: *mut CUevent);
    cuGraphEventWaitNodeSetEvent: (node: CUgraphNode, event: CUevent);
    cuGraphAddMemAllocNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize,
        node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphMemAllocNodeGetParams: (node: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphAddMemFreeNode: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, num_dependencies: usize, dptr: CUdeviceptr);
    cuGraphMemFreeNodeGetParams: (node: CUgraphNode, dptr_out: *mut CUdeviceptr);
    cuDeviceGraphMemTrim: (device: CUdevice);
    cuDeviceGetGraphMemAttribute: (device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void);
    cuDeviceSetGraphMemAttribute: (device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void);
    cuGraphClone: (graph_clone: *mut CUgraph, original_graph: CUgraph);
    cuGraphNodeFindInClone: (node: *mut CUgraphNode, original_node: CUgraphNode, cloned_graph: CUgraph);
    cuGraphNodeGetType: (node: CUgraphNode, kind: *mut CUgraphNodeType);
    cuGraphNodeGetContainingGraph: (node: CUgraphNode, graph: *mut CUgraph);
    cuGraphNodeGetLocalId: (node: CUgraphNode, node_id: *mut c_uint);
    cuGraphNodeGetToolsId: (node: CUgraphNode, tools_node_id: *mut u64);
    cuGraphGetId: (graph: CUgraph, graph_id: *mut c_uint);
    cuGraphExecGetId: (graph_exec: CUgraphExec, graph_id: *mut c_uint);
    cuGraphGetNodes: (graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
    cuGraphGetRootNodes: (graph: CUgraph, root_nodes: *mut CUgraphNode, num_root_nodes: *mut usize);
    cuGraphGetEdges: (graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize);
    cuGraphGetEdges_v2: (graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode,
        edge_data: *mut CUgraphEdgeData, num_edges: *mut usize);
    cuGraphNodeGetDependencies: (node: CUgraphNode, dependencies: *mut CUgraphNode,
        num_dependencies: *mut usize);
    cuGraphNodeGetDependencies_v2: (node: CUgraphNode, dependencies: *mut CUgraphNode,
        edge_data: *mut CUgraphEdgeData, num_dependencies: *mut usize);
    cuGraphNodeGetDependentNodes: (node: CUgraphNode, dependent_nodes: *mut CUgraphNode,
        num_dependent_nodes: *mut usize);
    cuGraphNodeGetDependentNodes_v2: (node: CUgraphNode, dependent_nodes: *mut CUgraphNode,
        edge_data: *mut CUgraphEdgeData, num_dependent_nodes: *mut usize);
    cuGraphAddDependencies: (graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        num_dependencies: usize);
    cuGraphAddDependencies_v2: (graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        edge_data: *const CUgraphEdgeData, num_dependencies: usize);
    cuGraphRemoveDependencies: (graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        num_dependencies: usize);
    cuGraphRemoveDependencies_v2: (graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        edge_data: *const CUgraphEdgeData, num_dependencies: usize);
    cuGraphDestroyNode: (node: CUgraphNode);
    cuGraphInstantiateWithFlags: (graph_exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz: (graph_exec: *mut CUgraphExec,
        graph: CUgraph, instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);
    cuGraphExecGetFlags: (graph_exec: CUgraphExec, flags: *mut u64);
    cuGraphExecKernelNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *const CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphExecKernelNodeSetParams_v2: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphExecMemcpyNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext);
    cuGraphExecMemsetNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext);
    cuGraphExecHostNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *const CUDA_HOST_NODE_PARAMS);
    cuGraphExecChildGraphNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode, child_graph: CUgraph);
    cuGraphExecEventRecordNodeSetEvent: (graph_exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecEventWaitNodeSetEvent: (graph_exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphNodeSetEnabled: (graph_exec: CUgraphExec, node: CUgraphNode, is_enabled: c_uint);
    cuGraphNodeGetEnabled: (graph_exec: CUgraphExec, node: CUgraphNode, is_enabled: *mut c_uint);
    cuGraphUpload, cuGraphUpload_ptsz: (graph_exec: CUgraphExec, stream: CUstream);
    cuGraphLaunch, cuGraphLaunch_ptsz: (graph_exec: CUgraphExec, stream: CUstream);
    cuGraphExecDestroy: (graph_exec: CUgraphExec);
    cuGraphDestroy: (graph: CUgraph);
    cuGraphExecUpdate: (graph_exec: CUgraphExec, graph: CUgraph, error_node_out: *mut CUgraphNode,
        update_result_out: *mut CUgraphExecUpdateResult);
    cuGraphExecUpdate_v2: (graph_exec: CUgraphExec, graph: CUgraph,
        result_info: *mut CUgraphExecUpdateResultInfo);
    cuUserObjectCreate: (object_out: *mut CUuserObject, ptr: *mut c_void, destroy: CUhostFn,
        initial_refcount: c_uint, flags: c_uint);
    cuUserObjectRetain: (object: CUuserObject, count: c_uint);
    cuUserObjectRelease: (object: CUuserObject, count: c_uint);
    cuGraphRetainUserObject: (graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
    cuGraphReleaseUserObject: (graph: CUgraph, object: CUuserObject, count: c_uint);
    cuGraphKernelNodeCopyAttributes: (dst: CUgraphNode, src: CUgraphNode);
    cuGraphKernelNodeGetAttribute: (node: CUgraphNode, attr: CUkernelNodeAttrID,
        value_out: *mut CUkernelNodeAttrValue);
    cuGraphKernelNodeSetAttribute: (node: CUgraphNode, attr: CUkernelNodeAttrID,
        value: *const CUkernelNodeAttrValue);
    cuGraphDebugDotPrint: (graph: CUgraph, path: *const c_char, flags: c_uint);
    cuGraphAddNode: (graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        num_dependencies: usize, node_params: *mut CUgraphNodeParams);
    cuGraphAddNode_v2, cuGraphAddNode_v3: (graph_node: *mut CUgraphNode, graph: CUgraph,
        dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData,
        num_dependencies: usize, node_params: *mut CUgraphNodeParams);
    cuGraphNodeSetParams, cuGraphNodeSetParams_v2: (node: CUgraphNode, node_params: *mut CUgraphNodeParams);
    cuGraphNodeGetParams: (node: CUgraphNode, node_params: *mut CUgraphNodeParams);
    cuGraphExecNodeSetParams: (graph_exec: CUgraphExec, node: CUgraphNode,
        node_params: *mut CUgraphNodeParams);
    cuGraphConditionalHandleCreate: (handle_out: *mut CUgraphConditionalHandle, graph: CUgraph,
        ctx: CUcontext, default_launch_value: c_uint, flags: c_uint);
    cuGraphInstantiate, cuGraphInstantiate_v2: (graph_exec: *mut CUgraphExec, graph: CUgraph,
        error_node: *mut CUgraphNode, log_buffer: *mut c_char, buffer_size: usize);
}
