//! Valid schedules, and the messages about invalid ones.

use super::*;

fn calendar_of(text: &str) -> Calendar {
    match Schedule::parse(text) {
        Ok(Schedule::Calendar(calendar)) => calendar,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn fields_are_lists_of_ranges_with_steps() {
    let bits = |numbers: &[u64]| numbers.iter().fold(0_u64, |bits, number| bits | 1 << number);
    let one = calendar_of("*/15 9-17/4 1,15 jan,MAR mon-fri");
    assert_eq!(one.minute, bits(&[0, 15, 30, 45]));
    assert_eq!((one.hour, one.day_of_month, one.month), (bits(&[9, 13, 17]), bits(&[1, 15]), bits(&[1, 3])));
    assert_eq!((one.day_of_week, one.any_day_of_month, one.any_day_of_week), (bits(&[1, 2, 3, 4, 5]), false, false));
    assert_eq!(calendar_of("50/5 * * * ?").minute, bits(&[50, 55]));
    let any = calendar_of("0 0 */1 * */2");
    assert!(any.any_day_of_month && !any.any_day_of_week, "a step of one restricts nothing");
    assert_eq!(calendar_of("@weekly"), calendar_of("0 0 * * 0"));
    assert_eq!(calendar_of("  0   0 * * 0 "), calendar_of("@weekly"));
    assert_eq!(calendar_of("TZ=UTC 0 0 * * 0"), calendar_of("@weekly"));
    assert_eq!(calendar_of(", * * * *").minute, 0);
    assert_eq!(calendar_of("1/9223372036854775807 * * * *").minute, bits(&[1]));
}

#[test]
fn waits_are_durations_of_go() {
    for (text, seconds) in [("1h30m", 5400), ("1.5s", 1), ("100ms", 1), ("-3h", 1), ("2m0.9s", 120)] {
        assert_eq!(
            Schedule::parse(&format!("@every {text}")),
            Ok(Schedule::Every(Duration::from_secs(seconds))),
            "{text}"
        );
    }
    for (text, why) in [
        ("x", "time: invalid duration \"x\""),
        ("", "time: invalid duration \"\""),
        ("5", "time: missing unit in duration \"5\""),
        ("5d", "time: unknown unit \"d\" in duration \"5d\""),
        ("9999999h", "time: invalid duration \"9999999h\""),
    ] {
        let error = Schedule::parse(&format!("@every {text}")).unwrap_err();
        assert_eq!(error, format!("failed to parse duration @every {text}: {why}"));
    }
}

#[test]
fn what_is_no_schedule_is_told_in_the_words_of_the_library() {
    for (text, why) in [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("9-3 * * * *", "beginning of range (9) beyond end of range (3): 9-3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        ("@often", "unrecognized descriptor: @often"),
        ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ("CRON_TZ=No/Where * * * * *", "provided bad location No/Where: unknown time zone No/Where"),
    ] {
        assert_eq!(Schedule::parse(text), Err(why.to_owned()), "{text}");
    }
}

#[test]
fn zones_are_those_that_the_system_has() {
    for name in ["Nowhere", "utc+1", "Europe"] {
        assert_eq!(zone::load(name).unwrap_err(), format!("unknown time zone {name}"));
    }
    for name in ["../zoneinfo/UTC", "/etc/localtime", "a/../b", "a\0"] {
        assert_eq!(zone::load(name).unwrap_err(), "time: invalid location name");
    }
    // A machine without time zone data has only this one.
    assert_eq!(zone::load("UTC"), Ok(jiff::tz::TimeZone::UTC));
    if std::path::Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
        assert_eq!(zone::load("Europe/Berlin").unwrap().iana_name(), Some("Europe/Berlin"));
        assert!(zone::load("europe/berlin").is_err());
    }
}
