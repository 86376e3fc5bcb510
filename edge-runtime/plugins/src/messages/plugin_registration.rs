//! `pluginregistration.Registration`: plugins of any type, which are found by their socket.

use super::push;
use crate::wire::{Malformed, Writer, fields};

pub(crate) const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
pub(crate) const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";

/// Most versions of a plugin.
const MAX_VERSIONS: usize = 32;
/// Longest answer, bytes.
const MAX_INFO: usize = 16 << 10;

/// What a plugin is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    /// `DevicePlugin`, `CSIPlugin`, `DRAPlugin`.
    pub(crate) kind: String,
    /// Resource of a device plugin, name of a driver.
    pub(crate) name: String,
    /// Path of the socket at which it serves; empty: the one at which it was asked.
    pub(crate) endpoint: String,
    pub(crate) versions: Vec<String>,
}

impl Info {
    /// # Errors
    /// It is malformed or over a limit; the text says what.
    pub(crate) fn read(message: &[u8]) -> Result<Self, String> {
        let malformed = |error: Malformed| error.to_string();
        if message.len() > MAX_INFO {
            return Err(format!("the answer has {} bytes, and {MAX_INFO} are allowed", message.len()));
        }
        let mut info = Self::default();
        for field in fields(message) {
            let (number, value) = field.map_err(malformed)?;
            match number {
                1 => value.text().map_err(malformed)?.clone_into(&mut info.kind),
                2 => value.text().map_err(malformed)?.clone_into(&mut info.name),
                3 => value.text().map_err(malformed)?.clone_into(&mut info.endpoint),
                4 => push(&mut info.versions, value.text().map_err(malformed)?.to_owned(), MAX_VERSIONS, "versions")?,
                _ => {}
            }
        }
        Ok(info)
    }
}

/// A `RegistrationStatus`.
pub(crate) fn status(registered: &Result<(), String>) -> Vec<u8> {
    let why = registered.as_ref().err().map_or("", String::as_str);
    Writer::default().flag(1, registered.is_ok()).text(2, why).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_read() {
        let message =
            Writer::default().text(1, "DevicePlugin").text(2, "a/b").text(3, "/x.sock").texts(4, ["v1", "v2"]);
        let read = Info::read(&message.finish()).expect("an answer");
        assert_eq!(
            (read.kind.as_str(), read.name.as_str(), read.endpoint.as_str()),
            ("DevicePlugin", "a/b", "/x.sock")
        );
        assert_eq!(read.versions, ["v1", "v2"]);
        let many = Writer::default().texts(4, [""; MAX_VERSIONS + 1]).finish();
        assert_eq!(Info::read(&many), Err("there are more than 32 versions".to_owned()));
        assert!(Info::read(&vec![0; MAX_INFO + 1]).is_err());
        assert!(Info::read(b"\x08\x01").is_err());
    }

    #[test]
    fn status_has_the_reason() {
        assert_eq!(status(&Ok(())), b"\x08\x01");
        assert_eq!(status(&Err("no".to_owned())), b"\x12\x02no");
    }
}
