//! The calling thread's stack of contexts (CUDA Driver API, "Context Management").

use std::cell::RefCell;
use std::sync::Arc;

use vcuda_driver_api::CUerror;

use crate::context::{CONTEXTS, Context};
use crate::process::process;

thread_local! {
    /// The top is the current context. A destroyed one stays until it is popped or replaced.
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The current context, alive.
///
/// # Errors
/// `CUDA_ERROR_NOT_PERMITTED` in a host function or callback; `CUDA_ERROR_NOT_INITIALIZED`;
/// `CUDA_ERROR_INVALID_CONTEXT` where the thread has none;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED` where another thread has destroyed it ("attempting to access ctx
/// from those threads will result in the error", `cuCtxDestroy`).
#[inline]
pub(crate) fn current() -> Result<Arc<Context>, CUerror> {
    crate::hostfunc::permit()?;
    process()?;
    let context = top().ok_or(CUerror::INVALID_CONTEXT)?;
    if context.is_alive() {
        return Ok(context);
    }
    // A primary context that was reset and retained again has the same handle (docs/hardware.md, "primary context").
    let second_life = CONTEXTS.get(context.handle).filter(|context| context.is_alive());
    let context = second_life.ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
    replace(Some(Arc::clone(&context)));
    Ok(context)
}

/// The top of the stack, alive or not.
pub(crate) fn top() -> Option<Arc<Context>> {
    // A thread that is ending has no stack any more: no context is current to it.
    STACK
        .try_with(|stack| stack.borrow().last().cloned())
        .ok()
        .flatten()
}

/// `cuCtxPushCurrent`.
pub(crate) fn push(context: Arc<Context>) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

/// `cuCtxPopCurrent`; none if the stack is empty.
pub(crate) fn pop() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

/// `cuCtxSetCurrent`: replaces the top; none pops it.
pub(crate) fn replace(context: Option<Arc<Context>>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
    });
}
