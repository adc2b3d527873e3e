//! A simulated NVML (libnvidia-ml.so.1) for machines without a GPU, over the simulated machine of `vcuda-machine`.
//!
//! It reports the use by the machine's processes: memory, processes, utilisation. Sensors are constants. NVML's only own
//! state is the count of initialisations and the event sets; it is not a process of the machine.
//!
//! | module | what |
//! |---|---|
//! | `export`, `unsupported` | rows that export handlers; all other names |
//! | `state` | initialisation, device handles |
//! | `answer` | access through the caller's pointers |
//! | `system`, `identity`, `memory`, `processes`, `accounting`, `samples`, `status`, `links`, `limits`, `events` | the handlers |
//!
//! Source of behaviour: NVML API reference guide, by function name. Behaviour without a source is a row of
//! `docs/hardware.md`. A function with a versioned structure refuses all unknown versions.

#![allow(non_snake_case, reason = "NVML's names")]

#[macro_use]
mod export;

mod accounting;
mod answer;
mod events;
mod identity;
mod limits;
mod links;
mod memory;
mod processes;
mod samples;
mod state;
mod status;
mod system;
mod unsupported;

#[cfg(test)]
mod tests;
