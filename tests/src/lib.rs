//! Whole-system tests: real programs under the shim.
