//! When changes of the kernel's rules begin, and what follows from their ends.

use super::*;

fn tables() -> Held {
    Held::Tables("m".into())
}

fn uids(answered: &Answered) -> Vec<&str> {
    answered.0.iter().map(String::as_str).collect()
}

/// The end of a change to [`tables`] that took no time, for which the pod `a` waits.
fn ended(schedule: &mut Schedule, done: Done) -> (usize, Result<(), String>, Option<Notice>) {
    schedule.running = Some((tables(), Mono(0), BTreeSet::from(["a".to_owned()])));
    schedule.dirty = false;
    let Ended { answered: (pods, result), notice } = schedule.ended(done, Mono(0));
    (pods.len(), result, notice)
}

#[test]
fn a_waiting_pod_shortens_the_pause_between_changes() {
    let mut schedule = Schedule::default();
    assert_eq!(schedule.wake(), None, "the first change begins at once");
    schedule.rest(Mono(1_000), Duration::from_millis(100));
    assert_eq!(schedule.wake(), Some(Mono(2_000)));
    schedule.wait("a");
    assert_eq!(schedule.wake(), Some(Mono(1_100)));
    schedule.rest(Mono(1_000), Duration::from_millis(1));
    assert_eq!(schedule.wake(), Some(Mono(1_050)), "pods that come together wait for one change");
}

#[test]
fn waiting_pod_is_held_only_while_the_runtime_is_busy() {
    let begins = |waits: bool, is_idle: bool| {
        let mut schedule = Schedule::default();
        schedule.rest(Mono(1_000), Duration::from_millis(100));
        if waits {
            schedule.wait("a");
        }
        schedule.begin(Mono(1_001), || is_idle) == Begin::Yes
    };
    assert!(begins(true, true) && !begins(true, false) && !begins(false, true));
}

#[test]
fn change_begins_once_and_when_it_is_due() {
    let mut schedule = Schedule::default();
    assert_eq!(schedule.begin(Mono(0), || false), Begin::Yes);
    assert_eq!(schedule.begin(Mono(0), || true), Begin::No, "nothing has changed since");
    schedule.rest(Mono(0), Duration::ZERO);
    schedule.changed();
    assert_eq!([49, 50].map(|now| schedule.begin(Mono(now), || false)), [Begin::No, Begin::Yes]);
    assert_eq!(schedule.write(tables(), Mono(50)), Write::Look);
    schedule.changed();
    assert_eq!(schedule.begin(Mono(1_000), || true), Begin::No, "one is running");
}

#[test]
fn pods_are_answered_at_once_after_a_failure() {
    let mut schedule = Schedule::default();
    let _later = ended(&mut schedule, Done::Replaced(Err("no nft".into())));
    schedule.wait("b");
    let Begin::Refused(answered) = schedule.begin(Mono(999), || true) else { panic!("{schedule:?}") };
    assert!(uids(&answered) == ["b"] && answered.1.is_err_and(|why| why.contains("no nft")));
    assert_eq!(schedule.begin(Mono(1_000), || false), Begin::Yes);
}

#[test]
fn kernel_is_written_only_for_another_state() {
    let mut schedule = Schedule::default();
    schedule.wait("a");
    assert_eq!(schedule.write(tables(), Mono(0)), Write::Look, "an earlier daemon may have made them");
    assert_eq!(uids(&schedule.ended(Done::Looked(true), Mono(0)).answered), ["a"]);
    schedule.wait("b");
    let Write::Nothing(answered) = schedule.write(tables(), Mono(0)) else { panic!("{schedule:?}") };
    assert_eq!((uids(&answered), &answered.1), (vec!["b"], &Ok(())));
    for (wanted, write) in [(Held::Tables("n".into()), Write::Replace), (Held::Nothing, Write::Clear)] {
        assert_eq!(schedule.write(wanted, Mono(0)), write);
        schedule.running = None;
    }
    assert_eq!(Schedule::default().write(Held::Nothing, Mono(0)), Write::Clear);
}

#[test]
fn kernel_that_refuses_is_asked_less_and_less_often() {
    let pauses = [0, 1, 2, 3, 4, 5, 6, 7, u32::MAX].map(|failures| retry_after(failures).as_secs());
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn long_change_pauses_for_a_minute_at_most() {
    let mut schedule = Schedule::default();
    for (took, waited_for, rested) in [(0, 50, 50), (6, 6_000, 60_000), (3_600, 60_000, 60_000)] {
        schedule.rest(Mono(0), Duration::from_secs(took));
        assert_eq!(schedule.not_before, Some((Mono(waited_for), Mono(rested))));
    }
}

#[test]
fn refused_rules_are_tried_again_and_told_once() {
    let mut schedule = Schedule::default();
    for failures in 1..=3 {
        let (pods, result, notice) = ended(&mut schedule, Done::Replaced(Err("no nft".into())));
        assert!(pods == 1 && result.is_err_and(|why| why.contains("no nft")), "the pod retries by itself");
        assert_eq!(notice, (failures == 1).then(|| Notice::Refused("no nft".into())));
        assert!(schedule.failures == failures && schedule.dirty && schedule.mark().is_none());
        assert_eq!(schedule.held, Held::Other);
    }
    assert_eq!(ended(&mut schedule, Done::Replaced(Ok(None))), (1, Ok(()), None));
    assert!(schedule.failures == 0 && !schedule.dirty && schedule.mark() == Some("m"));
    let around = Done::Replaced(Ok(Some("no table".into())));
    assert_eq!(ended(&mut schedule, around).2, Some(Notice::Around("no table".into())));
}

#[test]
fn look_at_the_kernel_lets_no_pod_in_without_tables() {
    let mut schedule = Schedule::default();
    assert_eq!(ended(&mut schedule, Done::Looked(false)), (0, Ok(()), None));
    assert!(schedule.waiting.contains("a") && schedule.dirty && schedule.due().is_none(), "they are made at once");
    assert_eq!(schedule.held, Held::Other);
    assert_eq!(ended(&mut schedule, Done::Looked(true)), (1, Ok(()), None));
    assert_eq!(schedule.mark(), Some("m"));
}

#[test]
fn node_without_nft_gives_up_to_clear_tables() {
    let mut schedule = Schedule::default();
    for _ in 0..CLEAR_AT_MOST {
        assert!(ended(&mut schedule, Done::Cleared(Err("no nft".into()))).1.is_err() && schedule.dirty);
    }
    let left = Some(Notice::Left("no nft".into()));
    assert_eq!(ended(&mut schedule, Done::Cleared(Err("no nft".into()))), (1, Ok(()), left));
    assert!(!schedule.dirty && schedule.failures == 0);
    let late = schedule.ended(Done::Cleared(Err("late".into())), Mono(0));
    assert_eq!(late, Ended { answered: nobody(), notice: None });
}

#[test]
fn nothing_wakes_the_loop_without_a_change_or_during_one() {
    let mut schedule = Schedule::default();
    schedule.rest(Mono(0), Duration::ZERO);
    assert_eq!(schedule.wake(), Some(Mono(50)));
    schedule.running = Some((Held::Nothing, Mono(0), BTreeSet::new()));
    assert_eq!(schedule.wake(), None, "its end is news");
    schedule.running = None;
    schedule.dirty = false;
    assert_eq!(schedule.wake(), None);
    schedule.held = tables();
    assert_eq!(schedule.mark(), Some("m"));
    schedule.lost();
    assert_eq!((schedule.mark(), schedule.wake()), (None, Some(Mono(50))));
}
