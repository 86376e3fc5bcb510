//! What a network plugin prints. The place for the reader of CNI results (`edge_runtime::net`); until it is there, the
//! readers of addresses, which stand behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = text.parse::<edge_runtime::net::Subnet>();
});
