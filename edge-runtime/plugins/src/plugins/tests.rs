use super::*;

type Table = Plugins<(), u64>;

fn device(id: &str, healthy: bool) -> Device {
    Device { id: id.to_owned(), healthy, numa: Vec::new() }
}

fn at(resource: &str, socket: &str) -> Registration {
    let place = Place { folder: "/plugins".into(), name: socket.to_owned() };
    Registration { resource: resource.to_owned(), place, options: Options::default(), is_kept: true }
}

fn registered(table: &mut Table, resource: &str) -> u64 {
    table.register(at(resource, resource), Instant::now(), |number| number);
    let number = table.newest;
    table.connected(resource, number, Rc::new(()));
    number
}

#[test]
fn newest_registration_counts() {
    let (mut table, now) = (Table::default(), Instant::now());
    let first = registered(&mut table, "r");
    assert!(table.connection("r").is_none(), "it has not listed its devices");
    assert_eq!(table.listed("r", first, vec![device("a", true)]), Ok(true));
    assert_eq!(table.connection("r").map(|(number, _)| number), Some(first));
    assert_eq!(table.news(now), [("r".to_owned(), News::Devices(vec![device("a", true)]))]);
    assert_eq!(table.register(at("r", "other"), now, |number| number), [("r".to_owned(), first)]);
    let second = table.newest;
    assert_eq!(table.listed("r", first, vec![device("a", true)]), Ok(false), "of the one before");
    assert!(!table.gone("r", first) && table.remove("r", first).is_none());
    assert_eq!(table.listed("r", second, vec![device("b", true)]), Ok(true));
    assert!(!table.gone("r", first), "its stream ends later");
    assert_eq!(table.connection("r"), None, "it is not connected");
    assert_eq!(
        table.news(now + EACH),
        [("r".to_owned(), News::Gone), ("r".to_owned(), News::Devices(vec![device("b", true)]))]
    );
    assert_eq!(table.remove("r", second), Some(second));
    assert_eq!(table.news(now + EACH), [("r".to_owned(), News::Gone)]);
}

#[test]
fn plugin_that_replaces_another_one_has_a_second() {
    let (mut table, now) = (Table::default(), Instant::now());
    let first = registered(&mut table, "r");
    assert_eq!(table.listed("r", first, vec![device("a", true)]), Ok(true));
    assert_eq!(table.news(now).len(), 1);
    table.register(at("r", "other"), now + EACH * 2, |number| number);
    assert!(table.news(now + EACH * 2).is_empty() && table.has_news());
    // The same devices are told again, because orders to the one before have failed.
    assert_eq!(table.listed("r", table.newest, vec![device("a", true)]), Ok(true));
    let devices = ("r".to_owned(), News::Devices(vec![device("a", true)]));
    assert_eq!(table.news(now + EACH * 2), [("r".to_owned(), News::Gone), devices]);
    assert!(!table.has_news());
    table.register(at("r", "r"), now + EACH * 4, |number| number);
    assert!(table.news(now + EACH * 4).is_empty() && table.has_news());
    assert_eq!(table.news(now + EACH * 5), [("r".to_owned(), News::Gone)], "it lists nothing");
    assert!(!table.has_news());
}

#[test]
fn socket_has_one_resource() {
    let (mut table, now) = (Table::default(), Instant::now());
    let (first, other) = (registered(&mut table, "first"), registered(&mut table, "other"));
    assert_eq!(table.listed("first", first, vec![device("a", true)]), Ok(true));
    assert_eq!(table.listed("other", other, vec![device("b", true)]), Ok(true));
    assert_eq!(table.news(now).len(), 2);
    assert_eq!(table.register(at("second", "first"), now, |number| number), [("first".to_owned(), first)]);
    assert!(table.connection("first").is_none(), "its device would be given under both names");
    assert_eq!(table.news(now), [("first".to_owned(), News::Gone)]);
    assert_eq!(table.listed("first", first, vec![device("a", true)]), Ok(false));
    assert!(table.connection("other").is_some(), "another place");
    let kept: Vec<_> = table.kept().map(|kept| (kept.resource.as_str(), kept.place.name.as_str())).collect();
    assert_eq!(kept, [("other", "other"), ("second", "first")]);
    let mut found = at("other", "other");
    found.is_kept = false;
    table.register(found, now, |number| number);
    assert_eq!(table.kept().count(), 1, "its folder shows it");
}

#[test]
fn only_changes_are_news() {
    let (mut table, mut now) = (Table::default(), Instant::now());
    let number = registered(&mut table, "r");
    assert!(!table.gone("r", number), "nothing was listed");
    assert_eq!(table.listed("r", number, Vec::new()), Ok(true), "a list without devices is one");
    assert_eq!(table.listed("r", number, Vec::new()), Ok(false));
    assert_eq!(table.news(now).len(), 1);
    assert_eq!(table.listed("r", number, vec![device("a", true)]), Ok(true));
    assert_eq!(table.listed("r", number, vec![device("a", false)]), Ok(true));
    now += EACH;
    assert_eq!(table.news(now), [("r".to_owned(), News::Devices(vec![device("a", false)]))], "the last state");
    table.begin();
    assert_eq!(table.news(now).len(), 1, "a new daemon need not wait");
    assert!(table.gone("r", number) && table.connection("r").is_none());
    assert_eq!(table.news(now), [("r".to_owned(), News::Gone)]);
    table.begin();
    assert!(table.news(now).is_empty(), "a new daemon is told of nothing that has gone");
}

#[test]
fn flapping_device_is_told_once_a_second() {
    let (mut table, start) = (Table::default(), Instant::now());
    let number = registered(&mut table, "r");
    let mut told = Vec::new();
    for step in 0..40_u64 {
        let now = start + EACH * u32::try_from(step).expect("small") / 16;
        assert_eq!(table.listed("r", number, vec![device("a", step % 2 == 0)]), Ok(true));
        told.extend(table.news(now).into_iter().map(|(_, news)| (step, news)));
    }
    let first = |healthy| News::Devices(vec![device("a", healthy)]);
    assert_eq!(told, [(0, first(true)), (16, first(true)), (32, first(true))]);
    assert!(table.has_news(), "the last state waits");
    assert_eq!(table.news(start + EACH * 3), [("r".to_owned(), first(false))]);
    assert!(!table.has_news());
    // What has gone does not wait, and is told once.
    let other = registered(&mut table, "s");
    assert_eq!(table.listed("s", other, vec![device("b", true)]), Ok(true));
    assert_eq!(table.news(start + EACH * 3).len(), 1, "each resource has its own second");
    assert!(table.gone("r", number));
    assert_eq!(table.news(start + EACH * 3), [("r".to_owned(), News::Gone)]);
    assert_eq!(table.listed("r", number, vec![device("a", true)]), Ok(true));
    assert!(table.news(start + EACH * 3).is_empty() && table.gone("r", number));
    assert!(table.news(start + EACH * 3).is_empty(), "the daemon knows");
}

#[test]
fn resources_and_devices_have_limits() {
    let mut table = Table::default();
    for number in 0..MAX_RESOURCES {
        table.admits(&number.to_string()).expect("there is room");
        registered(&mut table, &number.to_string());
    }
    assert!(table.admits("new").is_err_and(|why| why.contains("64")) && table.admits("0").is_ok());
    let many: Vec<_> = (0..MAX_ALL_DEVICES).map(|id| device(&id.to_string(), true)).collect();
    assert_eq!(table.listed("0", 1, many.clone()), Ok(true));
    assert!(table.listed("1", 2, vec![device("a", true)]).is_err_and(|why| why.contains("16384")));
    assert_eq!(table.listed("0", 1, vec![device("a", true)]), Ok(true));
    assert_eq!(table.listed("1", 2, vec![device("a", true)]), Ok(true));
    assert_eq!(table.count(), (2, 2));
}

#[test]
fn healthy_devices_and_numa_nodes_are_found() {
    let mut table = Table::default();
    let number = registered(&mut table, "r");
    let near = Device { numa: vec![1], ..device("b", true) };
    table.listed("r", number, vec![device("a", false), near]).expect("there is room");
    assert_eq!(table.healthy().collect::<Vec<_>>(), [("r", "b", &[1][..])]);
    assert_eq!(table.numa("r", "b"), vec![1_i64]);
    assert!(table.numa("r", "x").is_empty() && table.numa("s", "b").is_empty());
}
