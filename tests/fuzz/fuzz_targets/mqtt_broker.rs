//! Input of the devices helper from a broker.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    sampan_devices::fuzz::broker(data);
});
