//! Input from clients of the helper's own listener.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    sampan_devices::mqtt::listener::fuzz::bytes(data);
});
