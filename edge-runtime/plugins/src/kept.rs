//! Registrations at the kubelet's socket, in a file beside the socket of the helper. Plugins that watch only their own
//! socket register once; another helper of the same boot calls them at that socket. The file is in memory: each registration
//! is a `RegisterRequest` in field 1.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sampan_plugins_control::MAX_RESOURCES;
use sampan_sys::files::{replace, unless_missing};

use crate::messages::registration::{Register, VERSION};
use crate::plugins::Registration;
use crate::wire::{Writer, fields};

/// Longest file, bytes: [`MAX_RESOURCES`] registrations with the longest names.
const MAX_FILE: u64 = 64 << 10;

/// The registrations in the file. Malformed ones are left out.
pub(crate) fn read(file: &Path) -> Vec<Register> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    warn(file, unless_missing(read.map(drop)).map(drop));
    let found = fields(&bytes).filter_map(Result::ok).filter_map(|(_, value)| Register::read(value.bytes().ok()?).ok());
    found.take(MAX_RESOURCES).collect()
}

/// Replaces the file. If it cannot be written, the log says so, and the plugin is registered all the same.
pub(crate) fn write<'a>(file: &Path, all: impl Iterator<Item = &'a Registration>) {
    let bytes = all.fold(Writer::default(), |bytes, registration| bytes.message(1, message(registration))).finish();
    warn(file, replace(file, &bytes, false));
}

fn message(Registration { resource, place, options, .. }: &Registration) -> Writer {
    let register = Register {
        version: VERSION.to_owned(),
        endpoint: place.name.clone(),
        resource: resource.clone(),
        options: *options,
    };
    register.write()
}

fn warn(file: &Path, done: io::Result<()>) {
    if let Err(error) = done {
        log::warn!("{}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connected::Place;
    use crate::messages::registration::Options;

    #[test]
    fn file_has_what_was_registered() {
        let folder = tempfile::tempdir().expect("temp dir");
        let file = folder.path().join("plugins.registrations");
        assert!(read(&file).is_empty(), "there is none yet");
        let name = "n".repeat(255);
        let options = Options { pre_start: true, preferred: false };
        let all: Vec<_> = (0..=MAX_RESOURCES)
            .map(|number| Registration {
                resource: format!("{}/{number:063}", "d".repeat(244)),
                place: Place { folder: "/plugins".into(), name: name.clone() },
                options,
                is_kept: true,
            })
            .collect();
        write(&file, all.iter());
        let found = read(&file);
        assert_eq!(found.len(), MAX_RESOURCES, "the longest names fit, and no more are taken");
        let expected =
            Register { version: "v1beta1".to_owned(), endpoint: name, resource: all[7].resource.clone(), options };
        assert_eq!(found[7], expected);
        write(&file, all[..1].iter());
        assert_eq!(read(&file).len(), 1);
        std::fs::write(&file, b"\x0a\x02\x08\x01\x0a\x05\x1a\x03a/b\x0a\x09").expect("written");
        assert_eq!(read(&file).iter().map(|one| one.resource.as_str()).collect::<Vec<_>>(), ["a/b"]);
    }
}
