//! A simulated NVML (libnvidia-ml.so.1) for machines without a GPU, over the simulated machine of `vcuda-machine`.
//!
//! It shows what the machine's processes do: memory, processes, utilisation. Sensors are constants. NVML keeps no
//! state but a count of initialisations and the event sets; it never joins the machine as a process.
//!
//! | module | what |
//! |---|---|
//! | `exports` | the table: name => handler; `unsupported`: all other names |
//! | `state` | initialisation, device handles |
//! | `answer` | writing through the caller's pointers |
//! | `system`, `identity`, `memory`, `processes`, `accounting`, `samples`, `status`, `links`, `events` | the handlers |
//!
//! Source of behaviour: NVML API reference guide, under the names of the functions. What has no source is a
//! row of `docs/hardware.md`. A function whose structure carries a version refuses every version that it does not know.

#[macro_use]
mod export;

mod accounting;
mod answer;
mod events;
mod exports;
mod identity;
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
