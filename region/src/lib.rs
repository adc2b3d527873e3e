//! The memory that shim and manager share: limits, usage, ledger, account.
