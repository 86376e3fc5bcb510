//! Output of a network plugin, and the configuration lists of an administrator.
#![no_main]

use edge_runtime::net::Subnet;
use edge_runtime::net::cni::{conf, result};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = result::parse(data);
    let half = data.len() / 2;
    let text = result::failure(&data[..half], &data[half..], "exit status: 1");
    assert!(!text.is_empty(), "a failure has a reason");
    if let Ok(list) = conf::parse(data) {
        let _ = list.wants("portMappings");
        let _ = list.checks();
        let again = conf::parse(list.to_json().to_string().as_bytes());
        assert_eq!(again.as_ref(), Ok(&list), "a list reads the same when it is read again");
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<Subnet>();
    }
});
