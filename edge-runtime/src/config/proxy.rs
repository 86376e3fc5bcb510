//! The `proxy` section: the HTTP proxy, and what goes through it. Its shape is [`Proxy`]'s.

use super::error::{Wrong, wrong};
use crate::net::proxy::Proxy;

/// The address was checked when it was read.
pub(super) fn checked(proxy: Proxy) -> Result<Proxy, Wrong> {
    match proxy.malformed() {
        Some(entry) => {
            let why = format!("{entry:?} is none of HOST, HOST:PORT, .SUFFIX and ADDRESS/LENGTH");
            Err(wrong("proxy.except", why))
        }
        None => Ok(proxy),
    }
}
