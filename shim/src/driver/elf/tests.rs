//! ELF objects of this very process.

use crate::driver::objects::{find, libc_symbol, symbol_of};

#[test]
fn finds_what_the_linker_found() {
    assert_eq!(libc_symbol(c"getpid"), Some(libc::getpid as *const () as usize));
    assert_eq!(libc_symbol(c"dl_iterate_phdr"), Some(libc::dl_iterate_phdr as *const () as usize));
    assert_eq!(libc_symbol(c"no_such_function"), None);
    assert_eq!(symbol_of(c"libcuda.so.1", c"cuInit"), None);
}

#[test]
fn the_program_comes_first_and_contains_its_functions() {
    let own = finds_what_the_linker_found as *const () as usize;
    assert_eq!(find(|program| Some(program.contains(own))), Some(true));
    assert_eq!(find(|program| Some(program.contains(libc::getpid as *const () as usize))), Some(false));
}
