//! Calls that a program repeats, and setup for them. The driver's functions are looked up once, so that a measured call
//! includes no look-up.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;

use vcuda_driver_api::cuda::{
    CUdeviceptr, CUevent, CUevent_flags, CUfunction, CUgraph, CUgraphExec, CUstream, CUstream_flags,
    CUstreamCaptureMode, fn_types,
};

use super::{Cuda, CudaProblem};

/// The driver's functions that a submitting thread repeats.
#[derive(Debug)]
pub struct Calls<'a> {
    launch: fn_types::cuLaunchKernel,
    replay: fn_types::cuGraphLaunch,
    synchronize: fn_types::cuStreamSynchronize,
    record: fn_types::cuEventRecord,
    wait: fn_types::cuEventSynchronize,
    alloc: fn_types::cuMemAlloc_v2,
    free: fn_types::cuMemFree_v2,
    /// The functions lie in the library, which `Cuda` keeps loaded.
    library: PhantomData<&'a Cuda>,
}

impl Cuda {
    /// Looks up the functions.
    pub fn calls(&self) -> Result<Calls<'_>, CudaProblem> {
        Ok(Calls {
            launch: function!(self, cuLaunchKernel),
            replay: function!(self, cuGraphLaunch),
            synchronize: function!(self, cuStreamSynchronize),
            record: function!(self, cuEventRecord),
            wait: function!(self, cuEventSynchronize),
            alloc: function!(self, cuMemAlloc_v2),
            free: function!(self, cuMemFree_v2),
            library: PhantomData,
        })
    }

    /// A stream that does not wait for the default one.
    pub fn stream(&self) -> Result<CUstream, CudaProblem> {
        let create = function!(self, cuStreamCreate);
        let mut stream = CUstream::NULL;
        let flags = CUstream_flags::NON_BLOCKING.0;
        // SAFETY: `stream` is valid for writing.
        checked!(cuStreamCreate, unsafe { create(&raw mut stream, flags) })?;
        Ok(stream)
    }

    /// A timing event; a thread that waits for it sleeps.
    pub fn event(&self) -> Result<CUevent, CudaProblem> {
        let create = function!(self, cuEventCreate);
        let mut event = CUevent::NULL;
        let flags = CUevent_flags::BLOCKING_SYNC.0;
        // SAFETY: `event` is valid for writing.
        checked!(cuEventCreate, unsafe { create(&raw mut event, flags) })?;
        Ok(event)
    }

    /// GPU time between two events that have happened (milliseconds).
    pub fn elapsed_ms(&self, start: CUevent, end: CUevent) -> Result<f32, CudaProblem> {
        let elapsed = function!(self, cuEventElapsedTime);
        let mut ms = 0.0;
        // SAFETY: `ms` is valid for writing; both events came from `event` and are never destroyed.
        checked!(cuEventElapsedTime, unsafe { elapsed(&raw mut ms, start, end) })?;
        Ok(ms)
    }

    /// Makes an executable graph of the work that `submit` puts into the stream.
    pub fn captured(
        &self,
        stream: CUstream,
        submit: impl FnOnce() -> Result<(), CudaProblem>,
    ) -> Result<CUgraphExec, CudaProblem> {
        let begin = function!(self, cuStreamBeginCapture_v2);
        let finish = function!(self, cuStreamEndCapture);
        let instantiate = function!(self, cuGraphInstantiateWithFlags);
        // SAFETY: `stream` came from `stream` and is never destroyed.
        checked!(cuStreamBeginCapture_v2, unsafe { begin(stream, CUstreamCaptureMode::THREAD_LOCAL) })?;
        submit()?;
        let mut graph = CUgraph::NULL;
        // SAFETY: as above; `graph` is valid for writing.
        checked!(cuStreamEndCapture, unsafe { finish(stream, &raw mut graph) })?;
        let mut exec = CUgraphExec::NULL;
        // SAFETY: `graph` was made above; `exec` is valid for writing.
        checked!(cuGraphInstantiateWithFlags, unsafe { instantiate(&raw mut exec, graph, 0) })?;
        Ok(exec)
    }
}

impl Calls<'_> {
    /// Launches one thread of a kernel whose only parameter is a `u64`.
    pub fn launch(&self, stream: CUstream, kernel: CUfunction, mut argument: u64) -> Result<(), CudaProblem> {
        let launch = self.launch;
        let mut parameters: [*mut c_void; 1] = [(&raw mut argument).cast()];
        // SAFETY: the kernel takes one `u64`; the driver copies it before it returns.
        let status =
            unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut()) };
        checked!(cuLaunchKernel, status)
    }

    /// Launches a graph.
    pub fn replay(&self, stream: CUstream, graph: CUgraphExec) -> Result<(), CudaProblem> {
        let replay = self.replay;
        // SAFETY: both came from `Cuda` and are never destroyed.
        checked!(cuGraphLaunch, unsafe { replay(graph, stream) })
    }

    /// Waits until the stream's work is done.
    pub fn synchronize(&self, stream: CUstream) -> Result<(), CudaProblem> {
        let synchronize = self.synchronize;
        // SAFETY: `stream` came from `Cuda` and is never destroyed.
        checked!(cuStreamSynchronize, unsafe { synchronize(stream) })
    }

    /// Records `event` in the stream.
    pub fn record(&self, stream: CUstream, event: CUevent) -> Result<(), CudaProblem> {
        let record = self.record;
        // SAFETY: both came from `Cuda` and are never destroyed.
        checked!(cuEventRecord, unsafe { record(event, stream) })
    }

    /// Waits until `event` has happened.
    pub fn wait(&self, event: CUevent) -> Result<(), CudaProblem> {
        let wait = self.wait;
        // SAFETY: `event` came from `Cuda` and is never destroyed.
        checked!(cuEventSynchronize, unsafe { wait(event) })
    }

    /// Allocates device memory and frees it.
    pub fn allocate_and_free(&self, bytes: usize) -> Result<(), CudaProblem> {
        let (alloc, free) = (self.alloc, self.free);
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` is valid for writing.
        checked!(cuMemAlloc_v2, unsafe { alloc(&raw mut address, bytes) })?;
        // SAFETY: `address` was allocated above and no other code knows it.
        checked!(cuMemFree_v2, unsafe { free(address) })
    }
}
