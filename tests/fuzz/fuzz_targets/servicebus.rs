//! Requests of a program on the device to the servicebus: HTTP, its body whole or in chunks, and the target in it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sampan_devices::fuzz::servicebus(data));
