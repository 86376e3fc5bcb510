use std::cell::Cell;
use std::rc::Rc;

use futures::{FutureExt as _, stream};

use super::*;

/// A name, and a version that is also its size.
#[derive(Debug)]
struct One(&'static str, u32);

impl Named for One {
    fn key(&self) -> ObjectKey {
        ObjectKey::cluster(self.0)
    }

    fn cost(&self) -> usize {
        usize::try_from(self.1).unwrap()
    }
}

type Seen = Result<Event<One>, String>;

fn tell(followers: &Followers<One>, events: impl IntoIterator<Item = Event<One>>) {
    for event in events {
        // The start of a list waits for the followers, which these tests poll later.
        let _ = followers.tell(event).now_or_never();
    }
}

fn told(follower: &mut Follower<One>) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(Some(event)) = follower.next().now_or_never() {
        told.push(match event {
            Event::Init => "begin".to_owned(),
            Event::InitDone => "end".to_owned(),
            Event::InitApply(one) => format!("list {}{}", one.0, one.1),
            Event::Apply(one) => format!("{}{}", one.0, one.1),
            Event::Delete(one) => format!("-{}{}", one.0, one.1),
        });
    }
    told
}

#[tokio::test]
async fn event_reaches_all_followers() {
    let followers = Arc::<Followers<One>>::default();
    let mut all = [followers.join(), followers.join()];
    tell(&followers, [Event::Apply(One("early", 1)), Event::Init, Event::InitApply(One("a", 1)), Event::InitDone]);
    for one in &mut all {
        assert_eq!(told(one), ["begin", "list a1", "end"], "nothing before the first list");
    }
    tell(&followers, [Event::Apply(One("b", 2)), Event::Delete(One("a", 1))]);
    for one in &mut all {
        assert_eq!(told(one), ["b2", "-a1"]);
    }
}

#[tokio::test]
async fn slow_follower_gets_the_last_state_of_each_object() {
    let followers = Arc::<Followers<One>>::default();
    let (mut quick, mut slow) = (followers.join(), followers.join());
    tell(&followers, [Event::Init, Event::InitApply(One("a", 1)), Event::InitApply(One("b", 1)), Event::InitDone]);
    told(&mut quick);
    for version in 2..1000 {
        tell(&followers, [Event::Apply(One("a", version)), Event::Apply(One("c", version))]);
        assert_eq!(told(&mut quick).len(), 2, "it is not held back");
    }
    tell(&followers, [Event::Delete(One("b", 1000))]);
    assert_eq!(told(&mut slow), ["begin", "list a999", "-b1000", "end", "c999"]);
}

#[tokio::test]
async fn follower_that_is_too_slow_has_all_listed_again() {
    let followers =
        Arc::new(Followers::<One> { most: Most { objects: 2, ..MOST }, hold: Duration::ZERO, ..Followers::default() });
    let (mut quick, mut slow) = (followers.join(), followers.join());
    tell(&followers, [Event::Init, Event::InitDone]);
    told(&mut quick);
    told(&mut slow);
    followers.state().joined = false;
    for name in ["a", "b", "c", "d"] {
        followers.tell(Event::Apply(One(name, 1))).await;
        assert_eq!(told(&mut quick), [format!("{name}1")], "it is held back for a moment only");
    }
    assert!(!followers.state().needs_another_list(), "not before the slow one goes on");
    assert!(told(&mut slow).is_empty(), "its queue is dropped");
    assert!(followers.state().needs_another_list());
    tell(&followers, [Event::Init, Event::InitApply(One("d", 1)), Event::InitDone]);
    assert_eq!(told(&mut slow), ["begin", "list d1", "end"]);
}

#[tokio::test]
async fn follower_behind_by_many_bytes_has_all_listed_again() {
    let most = Most { bytes: 10, ..MOST };
    let followers = Arc::new(Followers::<One> { most, hold: Duration::ZERO, ..Followers::default() });
    let mut slow = followers.join();
    tell(&followers, [Event::Init, Event::InitDone]);
    assert_eq!(told(&mut slow), ["begin", "end"]);
    followers.state().joined = false;
    tell(&followers, [Event::Apply(One("large", 50))]);
    assert_eq!(told(&mut slow), ["large50"], "one alone has room");
    tell(&followers, [Event::Apply(One("a", 6)), Event::Apply(One("a", 4)), Event::Apply(One("b", 6))]);
    assert_eq!(told(&mut slow), ["a4", "b6"], "what is replaced does not count");
    for name in ["a", "b"] {
        followers.tell(Event::Apply(One(name, 6))).await;
    }
    assert!(told(&mut slow).is_empty(), "its queue is dropped");
    assert!(followers.state().needs_another_list());
}

#[tokio::test]
async fn object_waits_until_its_bytes_have_room() {
    let followers = Arc::new(Followers::<One> { most: Most { bytes: 10, ..MOST }, ..Followers::default() });
    let mut one = followers.join();
    tell(&followers, [Event::Init, Event::InitDone]);
    assert_eq!(told(&mut one), ["begin", "end"]);
    tell(&followers, [Event::Apply(One("a", 6))]);
    let mut put = Box::pin(followers.tell(Event::Apply(One("b", 6))));
    assert!(put.as_mut().now_or_never().is_none(), "there is no room");
    assert_eq!(told(&mut one), ["a6"]);
    assert!(put.as_mut().now_or_never().is_some(), "it has been told of the room");
    assert_eq!(told(&mut one), ["b6"]);
}

#[tokio::test]
async fn list_replaces_what_a_follower_has_not_heard() {
    let followers = Arc::<Followers<One>>::default();
    let mut one = followers.join();
    tell(&followers, [Event::Init, Event::InitApply(One("a", 1)), Event::InitDone, Event::Apply(One("b", 2))]);
    tell(&followers, [Event::Init, Event::InitApply(One("b", 3))]);
    assert_eq!(told(&mut one), ["begin", "list b3"]);
    tell(&followers, [Event::InitDone]);
    assert_eq!(told(&mut one), ["end"]);
}

#[tokio::test]
async fn list_is_asked_for_when_all_know_that_it_begins() {
    let followers = Arc::<Followers<One>>::default();
    let (mut one, mut other) = (followers.join(), followers.join());
    let asked = Rc::new(Cell::new(0));
    let begin = || {
        let asked = Rc::clone(&asked);
        let list = stream::once(async move {
            asked.set(asked.get() + 1);
            Seen::Ok(Event::InitDone)
        });
        stream::iter([Seen::Ok(Event::Init)]).chain(list)
    };
    let mut watching = pin!(followers.watch("tests", begin));
    let mut go_on = || assert!(watching.as_mut().now_or_never().is_none());
    go_on();
    assert_eq!(told(&mut one), ["begin"]);
    go_on();
    assert_eq!(asked.get(), 0, "the other may be writing");
    assert_eq!(told(&mut other), ["begin"]);
    go_on();
    assert_eq!((asked.get(), told(&mut one), told(&mut other)), (1, vec!["end".to_owned()], vec!["end".to_owned()]));
    // One that comes late has all listed again, for all.
    let mut late = followers.join();
    go_on();
    assert_eq!((told(&mut one), told(&mut late)), (vec!["begin".to_owned()], vec!["begin".to_owned()]));
    drop(other);
    go_on();
    assert_eq!((asked.get(), told(&mut late)), (2, vec!["end".to_owned()]), "one that went is not waited for");
}

#[tokio::test]
async fn follower_that_did_not_hear_of_a_list_has_another_one() {
    let followers = Arc::new(Followers::<One> { patience: Duration::from_millis(100), ..Followers::default() });
    let (mut quick, mut late) = (followers.join(), followers.join());
    tell(&followers, [Event::Init, Event::InitDone]);
    followers.state().joined = false;
    assert_eq!((told(&mut quick).len(), told(&mut late).len()), (2, 2));
    let mut begins = Box::pin(followers.tell(Event::Init));
    assert!(begins.as_mut().now_or_never().is_none(), "it waits");
    assert_eq!(told(&mut quick), ["begin"]);
    begins.await;
    tell(&followers, [Event::InitApply(One("a", 1)), Event::InitDone]);
    assert_eq!(told(&mut quick), ["list a1", "end"]);
    assert!(told(&mut late).is_empty(), "the list may leave out what it has made meanwhile");
    assert!(followers.state().needs_another_list());
    tell(&followers, [Event::Init, Event::InitApply(One("a", 1)), Event::InitDone]);
    assert_eq!(told(&mut late), ["begin", "list a1", "end"]);
}

#[tokio::test]
async fn nothing_is_watched_without_followers() {
    let followers = Arc::<Followers<One>>::default();
    let held = Rc::new(());
    let begin = || {
        let held = Rc::clone(&held);
        stream::iter([Seen::Ok(Event::Init)]).chain(stream::pending()).map(move |event| {
            let _watched = &held;
            event
        })
    };
    let mut watching = pin!(followers.watch("tests", begin));
    let mut go_on = || assert!(watching.as_mut().now_or_never().is_none());
    go_on();
    assert_eq!(Rc::strong_count(&held), 1);
    let one = followers.join();
    go_on();
    assert_eq!(Rc::strong_count(&held), 2);
    drop(one);
    go_on();
    assert_eq!((Rc::strong_count(&held), followers.state().queues.len()), (1, 0));
}
