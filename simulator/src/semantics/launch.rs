//! Kernel launches (CUDA Driver API, "Execution Control"): checks a launch, reads its arguments once, and submits one
//! command.

use vcuda_driver_api::prelude::*;
use vcuda_machine::Command;

use crate::base::pace::Pace;
use crate::object::arguments::Given;
use crate::object::graph::node::Operation;
use crate::object::kernel::{Kernel, Shape, check};
use crate::object::limits::DEFAULT_LOCAL_BYTES;
use crate::object::process::process;
use crate::object::stream::Stream;
use crate::semantics::{capture, host_thread, ordering};

/// Launches a kernel in a stream, or adds a node if the stream is capturing. Errors: `INVALID_HANDLE` where function
/// and stream are of different contexts; `INVALID_VALUE` for sizes or arguments; `COOPERATIVE_LAUNCH_TOO_LARGE`; those
/// of capture.
#[inline]
pub(crate) fn launch(
    stream: &Stream,
    named: usize,
    shape: Shape,
    given: Given,
    is_cooperative: bool,
) -> CUresult {
    let function = crate::object::library::function_for(CUfunction(named), stream)?;
    if let Some(recording) = capture::intercept(stream)? {
        let kernel = Kernel::new(function, named, shape, given, is_cooperative)?;
        return recording.add(Operation::Kernel(kernel)).map(drop);
    }
    check(&function, &shape, given, is_cooperative)?;
    if function.info.local_bytes > DEFAULT_LOCAL_BYTES {
        let context = crate::object::context::context(stream.context)?;
        crate::object::context::limits_of(&context).reserve_local(u64::from(function.info.local_bytes))?;
    }
    let argument = if function.pace.needs_argument() { given.first()? } else { 0 };
    let sms = shape.sms(stream.sms);
    let duration_ns = function.pace.duration_ns(shape.blocks(), stream.sms, argument);
    let command = match function.pace {
        Pace::Rendezvous => Command::Rendezvous {
            duration_ns,
            rendezvous: (argument >> 32) as u16,
            parties: (argument >> 48) as u8,
            sms,
        },
        Pace::Fed => return host_thread::spin(stream, argument, sms),
        _ => Command::Kernel { duration_ns, sms },
    };
    let ticket = ordering::submit(stream, command)?;
    let process = process()?;
    // Neither kernels that wait for the host (`vcuda_fed`) nor graphs are waited for.
    if process.machine.config().driver.launch_blocks {
        process.client.wait(ticket);
    }
    Ok(())
}
