//! Manifests, indexes and configurations of images, and the names of images.
#![no_main]

use edge_runtime::image::Reference;
use edge_runtime::image::challenge;
use edge_runtime::image::manifest::{Document, parse_configuration, parse_document};
use edge_runtime::image::platform::Wanted;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Document::Index(builds)) = parse_document(data, "image", "sha256:0") {
        let _ = Wanted::here().select(&builds, "image");
    }
    let _ = parse_configuration(data, "image");
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = challenge::parse(text);
    if let Ok(reference) = Reference::parse(text) {
        let name = reference.to_string();
        let again = Reference::parse(&name).unwrap_or_else(|error| panic!("{name:?} does not parse again: {error}"));
        assert_eq!(again.to_string(), name, "a normalized name is its own normal form");
    }
});
