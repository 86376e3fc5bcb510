//! The clock of the bridge's machine: certificates, tokens and events go by it.
#![allow(unsafe_code)]

use std::time::SystemTime;

use apimachinery::clock::believable;
use jiff::Timestamp;

use super::finding::Finding;

const CURE: &str =
    "systemctl enable --now systemd-timesyncd (or install chrony); at once: date -s 'YYYY-MM-DD HH:MM:SS'";

/// `synchronized`: whether something disciplines the clock; `None` if the kernel does not say.
pub(super) fn judge(now: SystemTime, synchronized: Option<bool>) -> Finding {
    let said = Timestamp::try_from(now).map_or_else(|_| "?".to_owned(), |now| format!("{now:.0}"));
    if believable(now) != now {
        let what = format!("the clock says {said}, which is before this program was made");
        return Finding::error("clock", what, "certificates and tokens that the bridge makes have wrong times", CURE);
    }
    match synchronized {
        Some(false) => {
            let why = "nothing keeps the clock right: in some months, certificates and tokens seem expired";
            Finding::warning("clock", format!("the clock ({said}) is not synchronized"), why, CURE)
        }
        Some(true) => Finding::ok("clock", format!("synchronized, {said}")),
        None => Finding::info("clock", format!("{said}; the kernel does not say whether it is synchronized")),
    }
}

/// Whether the kernel believes its clock to be right.
pub(super) fn synchronized() -> Option<bool> {
    use nix::libc;
    // SAFETY: timex is plain integers, for which zero is a valid value; modes 0 only reads.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    // adjtimex(2): TIME_ERROR means not synchronized; other states are leap second matters.
    (state >= 0).then_some(state != libc::TIME_ERROR)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::assert_found;

    #[test]
    fn wrong_and_lonely_clocks_are_found() {
        let now = UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        assert_found(&[judge(UNIX_EPOCH, Some(true))], "clock", Severity::Error, "date -s");
        assert_found(&[judge(now, Some(false))], "clock", Severity::Warning, "systemd-timesyncd");
        assert_eq!(judge(now, Some(true)).severity, Severity::Ok);
        assert_eq!(judge(now, None).severity, Severity::Info);
        assert!(synchronized().is_some());
    }
}
