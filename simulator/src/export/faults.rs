//! Injected faults: functions that fail at configured calls (`machine.toml`, `[faults.functions]`).
//!
//! A failing call does nothing and returns the configured code. Calls are counted from `cuInit` on, per process and
//! exported symbol.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;

use once_cell::sync::OnceCell;
use vcuda_driver_api::CUerror;
use vcuda_machine::{Config, FunctionFault, MachineError};

/// Whether any function has a fault; checked at every call.
static ANY: AtomicBool = AtomicBool::new(false);
static FAULTS: OnceCell<HashMap<String, Counted>> = OnceCell::new();

#[derive(Debug)]
struct Counted {
    fault: FunctionFault,
    calls: AtomicU64,
}

/// Sets the faults of the machine's configuration. Fails for a configured name that is no function of this library.
pub(crate) fn arm(config: &Config) -> Result<(), MachineError> {
    let faults = &config.faults.functions;
    let is_known =
        |name: &&String| crate::export::lookup::exports().any(|export| export.name == name.as_str());
    if let Some(name) = faults.keys().find(|name| !is_known(name)) {
        return Err(MachineError::Value {
            field: "faults.functions".into(),
            value: name.clone(),
            remedy: "name an exported symbol, as cuMemAlloc_v2".into(),
        });
    }
    if !faults.is_empty() {
        let counted = |fault: &FunctionFault| Counted { fault: fault.clone(), calls: AtomicU64::new(0) };
        FAULTS.get_or_init(|| faults.iter().map(|(name, fault)| (name.clone(), counted(fault))).collect());
        ANY.store(true, Ordering::Release);
    }
    Ok(())
}

/// The error that this call of a function must return, if any.
#[inline]
pub(crate) fn strike(name: &str) -> Option<CUerror> {
    if ANY.load(Ordering::Acquire) { count(name) } else { None }
}

#[cold]
fn count(name: &str) -> Option<CUerror> {
    let counted = FAULTS.get()?.get(name)?;
    let call = counted.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let fault = &counted.fault;
    let is_chosen = fault.nth == Some(call) || fault.every.is_some_and(|every| call.is_multiple_of(every));
    is_chosen.then(|| CUerror::new(fault.code)).flatten()
}
