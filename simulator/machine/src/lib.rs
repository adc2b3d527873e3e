//! The simulated machine: shared state, engine, record.
