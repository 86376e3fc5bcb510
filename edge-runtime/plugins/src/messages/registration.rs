//! `v1beta1.Registration`: a plugin says which resource it has, and where it serves.

use crate::wire::{Malformed, Writer, fields};

pub(crate) const REGISTER: &str = "/v1beta1.Registration/Register";
/// The version of the API, the only one.
pub(crate) const VERSION: &str = "v1beta1";

/// Which calls a plugin wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) pre_start: bool,
    pub(crate) preferred: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) version: String,
    pub(crate) endpoint: String,
    pub(crate) resource: String,
    pub(crate) options: Options,
}

impl Options {
    /// # Errors
    /// The bytes are no `DevicePluginOptions`.
    pub(crate) fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        for field in fields(message) {
            match field? {
                (1, value) => options.pre_start = value.flag()?,
                (2, value) => options.preferred = value.flag()?,
                _ => {}
            }
        }
        Ok(options)
    }
}

impl Register {
    /// # Errors
    /// The bytes are no `RegisterRequest`.
    pub(crate) fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut register = Self::default();
        for field in fields(message) {
            match field? {
                (1, value) => value.text()?.clone_into(&mut register.version),
                (2, value) => value.text()?.clone_into(&mut register.endpoint),
                (3, value) => value.text()?.clone_into(&mut register.resource),
                (4, value) => register.options = Options::read(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(register)
    }

    /// Returns the message as a plugin writes it.
    pub(crate) fn write(&self) -> Writer {
        let options = Writer::default().flag(1, self.options.pre_start).flag(2, self.options.preferred);
        Writer::default().text(1, &self.version).text(2, &self.endpoint).text(3, &self.resource).message(4, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_is_read() {
        let options = Writer::default().flag(1, true).flag(2, true);
        let message = Writer::default()
            .text(1, "v1beta1")
            .text(2, "gpu.sock")
            .text(3, "example.com/gpu")
            .message(4, options)
            .text(99, "of a later version")
            .finish();
        let options = Options { pre_start: true, preferred: true };
        let (version, endpoint) = ("v1beta1".to_owned(), "gpu.sock".to_owned());
        let expected = Register { version, endpoint, resource: "example.com/gpu".to_owned(), options };
        assert_eq!(Register::read(&expected.write().finish()).as_ref(), Ok(&expected));
        assert_eq!(Register::read(&message), Ok(expected));
        assert_eq!(Register::read(&[]), Ok(Register::default()));
        for wrong in [&b"\x08\x01"[..], b"\x1a\x01\xff", b"\x22\x01\x08", b"\x20\x01"] {
            assert_eq!(Register::read(wrong), Err(Malformed), "{wrong:?}");
        }
    }
}
