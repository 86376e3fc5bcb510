//! Source of an epoll event, in 64 bits: a serial number and a kind. Pure.

pub(crate) const LISTENER: u64 = u64::MAX;
pub(crate) const SIGNALS: u64 = u64::MAX - 1;

pub(crate) enum Kind {
    Stdout,
    Stderr,
    Ended,
    Client,
}

pub(crate) fn stdout(serial: u64) -> u64 {
    serial << 2
}

pub(crate) fn stderr(serial: u64) -> u64 {
    serial << 2 | 1
}

pub(crate) fn ended(serial: u64) -> u64 {
    serial << 2 | 2
}

pub(crate) fn client(serial: u64) -> u64 {
    serial << 2 | 3
}

pub(crate) fn split(token: u64) -> (u64, Kind) {
    let kind = match token & 3 {
        0 => Kind::Stdout,
        1 => Kind::Stderr,
        2 => Kind::Ended,
        _ => Kind::Client,
    };
    (token >> 2, kind)
}
