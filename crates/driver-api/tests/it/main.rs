//! The prototypes and structures, held against what was read off real drivers and headers.

mod entry_points;
mod layout;
mod nvml_layout;
mod prototypes;
mod tables;
