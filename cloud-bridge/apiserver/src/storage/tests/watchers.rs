//! Changes that watchers receive, and disconnected watchers.

use sampan_json::SetField;

use super::*;

#[test]
fn watcher_is_asked_about_its_own_namespace_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut interest = |namespace: Option<&str>, name: &'static str| {
        let asked = Arc::clone(&asked);
        let filter = move |_: &Change| {
            asked.lock().unwrap().push(name);
            Some(View::Modified)
        };
        let interest = Interest { namespace: namespace.map(str::to_owned), ..all(filter) };
        store.subscribe("things", interest)
    };
    let mut watchers = [interest(None, "all"), interest(Some("a"), "own"), interest(Some("other"), "other")];
    store.write("things", object("x", "0"), None, None).unwrap();
    assert_eq!(*asked.lock().unwrap(), ["all", "own"]);
    assert_eq!(watchers.each_mut().map(|watcher| watcher.try_recv().is_ok()), [true, true, false]);
}

#[test]
fn watcher_beyond_its_share_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let room = Arc::new(());
    let charge = {
        let room = Arc::clone(&room);
        move |_| (Arc::strong_count(&room) < 5).then(|| Arc::new(Arc::clone(&room)) as Held)
    };
    let mut watcher = store.subscribe("things", Interest { charge: Box::new(charge), ..all(|_| Some(View::Modified)) });
    let mut write = |name: &str| drop(store.write("things", object(name, "0"), None, None).unwrap());
    write("a");
    drop(watcher.try_recv().unwrap());
    ["b", "c", "d", "e"].into_iter().for_each(&mut write);
    assert_eq!(std::iter::from_fn(|| watcher.try_recv().ok()).count(), 3);
    assert!(matches!(watcher.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)));
}

#[test]
fn a_slow_watcher_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut watcher = store.subscribe("things", all(|_| Some(View::Modified)));
    let mut stored = store.write("things", object("x", "0"), None, None).unwrap();
    for n in 1..1100 {
        stored = store.write("things", object("x", &n.to_string()), Some(&stored), None).unwrap();
    }
    let mut seen = 0;
    while watcher.try_recv().is_ok() {
        seen += 1;
    }
    assert_eq!(seen, 1024);
    assert!(matches!(watcher.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)));
}

#[test]
fn what_waits_for_a_watcher_is_not_parsed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut views: Vec<_> = [View::Added, View::Left]
        .map(|view| store.subscribe("things", all(move |change| change.before.as_ref().map(|_| view))))
        .into();
    let old = store.write("things", object("x", "0"), None, None).unwrap();
    let new = store.write("things", object("x", "1"), Some(&old), None).unwrap();
    let told =
        |views: &mut Vec<Subscription>| views.iter_mut().map(|view| view.try_recv().unwrap()).collect::<Vec<_>>();
    let told = told(&mut views);
    assert!(told.iter().all(|told| told.object.value.get().is_none() && told.rev == new.rev));
    assert_eq!(told[0].object.value(), new.value());
    let mut left = old.value().clone();
    left.set_at(&["metadata", "resourceVersion"], new.rev.to_string().into());
    assert_eq!(told[1].object.value(), &left, "what it was, at the revision at which it left");
}
