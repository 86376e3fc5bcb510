//! Time of a renewal.

use super::*;

#[test]
fn g24_renewal_is_due_between_seven_and_nine_tenths_of_the_life() {
    let day = 86_400_000;
    let terms = |left| IdentityTerms { now_ms: 0, left_ms: left * day, life_ms: 100 * day };
    let days = |left, random| due_in(&terms(left), random).as_secs() / 86_400;
    assert_eq!((days(100, u32::MAX), days(100, 0)), (70, 90), "counted from the issue");
    assert_eq!((days(40, u32::MAX), days(40, 0)), (10, 30), "from a later connection");
    assert_eq!((days(29, u32::MAX), days(9, 0)), (0, 0), "overdue: now");
    assert_eq!(due_in(&IdentityTerms { now_ms: 0, left_ms: 0, life_ms: 0 }, 0), Duration::ZERO);
    assert_eq!(pause(&terms(0)), Duration::from_secs(3600));
    assert_eq!(pause(&IdentityTerms { now_ms: 0, left_ms: 0, life_ms: 8_000 }), Duration::from_secs(1));
}
