//! The calling thread's stack of contexts (CUDA Driver API, "Context Management").

use core::sync::atomic::Ordering;
use std::cell::RefCell;
use std::sync::Arc;

use vcuda_driver_api::CUerror;

use crate::object::context::{CONTEXTS, Context};
use crate::object::process::process;

/// A thread's contexts, the current one last. A destroyed context stays until it is popped or replaced.
#[derive(Debug)]
struct Stack(Vec<Arc<Context>>);

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack(Vec::new())) };
}

/// Value of `driver.green_current_once`.
fn is_green_once() -> bool {
    process().is_ok_and(|process| process.machine.config().driver.green_current_once)
}

impl Stack {
    /// Pushes a context. Error: `CUDA_ERROR_INVALID_CONTEXT` for a green context of another thread (docs/hardware.md,
    /// "green contexts").
    fn push(&mut self, context: Arc<Context>) -> Result<(), CUerror> {
        if let Some(part) = &context.green
            && is_green_once()
            && !part.holder.claim(crate::base::thread::number())
        {
            return Err(CUerror::INVALID_CONTEXT);
        }
        self.0.push(context);
        Ok(())
    }

    fn pop(&mut self) -> Option<Arc<Context>> {
        let context = self.0.pop()?;
        let is_left = |other: &Arc<Context>| Arc::ptr_eq(other, &context);
        if let Some(part) = &context.green
            && !self.0.iter().any(is_left)
        {
            part.holder.0.store(0, Ordering::Release);
        }
        Some(context)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// The current context, which is alive. Errors: `CUDA_ERROR_NOT_PERMITTED` in a host function or callback;
/// `CUDA_ERROR_NOT_INITIALIZED`; `CUDA_ERROR_INVALID_CONTEXT` where the thread has none;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED` where another thread has destroyed it ("attempting to access ctx from those
/// threads will result in the error", `cuCtxDestroy`).
#[inline]
pub(crate) fn current() -> Result<Arc<Context>, CUerror> {
    crate::base::thread::permit()?;
    process()?;
    let context = top().ok_or(CUerror::INVALID_CONTEXT)?;
    if context.is_alive() {
        return Ok(context);
    }
    // A primary context that was reset and retained again has the same handle (docs/hardware.md, "primary context").
    let second_life = CONTEXTS.get(context.handle).filter(|context| context.is_alive());
    let context = second_life.ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
    replace(Some(Arc::clone(&context)))?;
    Ok(context)
}

/// The current context, alive or not.
pub(crate) fn top() -> Option<Arc<Context>> {
    // A thread that is ending has no stack, and so no current context.
    STACK.try_with(|stack| stack.borrow().0.last().cloned()).ok().flatten()
}

/// `cuCtxPushCurrent`.
pub(crate) fn push(context: Arc<Context>) -> Result<(), CUerror> {
    STACK.try_with(|stack| stack.borrow_mut().push(context)).unwrap_or(Ok(()))
}

/// `cuCtxPopCurrent`; `None` if the stack is empty.
pub(crate) fn pop() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

/// `cuCtxSetCurrent`: replaces the current context; `None` pops it. Error: as [`Stack::push`]; the current context then
/// stays.
pub(crate) fn replace(context: Option<Arc<Context>>) -> Result<(), CUerror> {
    STACK
        .try_with(|stack| {
            let mut stack = stack.borrow_mut();
            let before = stack.pop();
            let Some(context) = context else { return Ok(()) };
            let pushed = stack.push(context);
            if pushed.is_err()
                && let Some(before) = before
            {
                stack.push(before)?;
            }
            pushed
        })
        .unwrap_or(Ok(()))
}
