//! What devices, mappers and the API say: documents of MQTT, calls of DMI, objects, records.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    sampan_devices::fuzz::twins(data);
});
