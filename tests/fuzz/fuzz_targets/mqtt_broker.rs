//! What a broker sends to the helper for devices.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    sampan_devices::fuzz::broker(data);
});
