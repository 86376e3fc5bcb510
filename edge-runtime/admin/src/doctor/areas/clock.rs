//! The clock: certificates and image registries are judged by it.

use jiff::Timestamp;

use crate::doctor::finding::Finding;

const CHECK: &str = "clock";
/// 2026-01-01: no program of this version was built before. As `edge_runtime::link::tls`.
const BUILT: i64 = 1_767_225_600;

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    now: Timestamp,
    /// `None` if the kernel does not report it.
    synchronized: Option<bool>,
}

pub(crate) fn look() -> Facts {
    Facts { now: Timestamp::now(), synchronized: sampan_sys::board::clock_synchronized() }
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let now = format!("{:.0}", facts.now);
    let cure = "systemctl enable --now systemd-timesyncd (or install chrony); at once: date -s 'YYYY-MM-DD HH:MM:SS'";
    if facts.now.as_second() < BUILT {
        let what = format!("the clock says {now}, which is before this program was made");
        let why = "certificates of registries are not valid yet by this clock, and logs have wrong times";
        return vec![Finding::error(CHECK, what, why, cure)];
    }
    match facts.synchronized {
        Some(false) => {
            let why = "nothing keeps the clock right: after some months off, certificates seem expired";
            vec![Finding::warning(CHECK, format!("the clock ({now}) is not synchronized"), why, cure)]
        }
        Some(true) => vec![Finding::ok(CHECK, format!("synchronized, {now}"))],
        None => vec![Finding::info(CHECK, format!("{now}; the kernel does not say whether it is synchronized"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    #[test]
    fn a_clock_that_is_wrong_or_alone_is_found() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let judge = |now, synchronized| judge(&Facts { now: at(now), synchronized });
        assert_found(&judge(86_400, Some(true)), "clock", Severity::Error, "date -s");
        assert_found(&judge(BUILT + 1, Some(false)), "clock", Severity::Warning, "systemd-timesyncd");
        assert_fine(&judge(BUILT + 1, Some(true)));
        assert_fine(&judge(BUILT + 1, None));
    }
}
