//! vcuda: run a command under a GPU quota, and show who uses what.
fn main() {}
