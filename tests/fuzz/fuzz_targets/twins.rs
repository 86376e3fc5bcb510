//! Input from devices, mappers and the API: MQTT documents, DMI calls, objects, records.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    sampan_devices::fuzz::twins(data);
});
