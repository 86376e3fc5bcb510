//! Replaces functions that a static program without unwind tables links but cannot use. Do not combine it with
//! `cross/no-stack-bounds.c`: the linker uses the first of two definitions, and the program comes before the library.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

/// `_URC_END_OF_STACK` of the C++ ABI for exception handling.
const END_OF_STACK: c_int = 5;

/// Without unwind tables, libgcc's stack walk fails an assertion on aarch64 and loops forever on armv7. Once LTO sees
/// that the walk finds nothing, std's reader of debug information is removed, 155 KB. The message and location of a
/// panic do not need it.
// SAFETY: the name and the signature are the C++ ABI's; it uses nothing that it is given.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_found: *const c_void, _argument: *mut c_void) -> c_int {
    END_OF_STACK
}
