//! Requests of any client of the daemon's health socket or port.
#![no_main]

use edge_runtime::health::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = read(data);
    for cut in (0..data.len()).step_by(1 + data.len() / 64) {
        let part = read(data.get(..cut).unwrap_or_default());
        assert!(part.is_none() || part == whole, "the answer is the same however the bytes are cut");
    }
});
