use serde_json::Value;

use super::super::pod::tests::running;
use super::super::pod::{Phase, PodSeen};
use super::*;

fn all<'a>(seen: impl IntoIterator<Item = PodSeen<'a>>) -> Pods {
    let mut pods = Pods::default();
    seen.into_iter().for_each(|pod| drop(pods.seen(pod)));
    pods
}

fn answer(pods: &Pods, filter: &str, after: &str) -> Value {
    let mut search = Search::new(filter, after).unwrap();
    while search.look(pods, |node| node != "cloud") {}
    serde_json::from_str(&search.answer()).unwrap()
}

fn names(answer: &Value) -> Vec<&str> {
    answer["pods"].as_array().unwrap().iter().map(|row| row[1].as_str().unwrap()).collect()
}

#[test]
fn worst_pod_of_the_shown_nodes_comes_first() {
    let failed = PodSeen { phase: Phase::Failed, reason: "Evicted", ..running("c", false, 0) };
    let ended = PodSeen { phase: Phase::Succeeded, ..running("a-job", false, 0) };
    let elsewhere = PodSeen { node: "cloud", ..running("x", false, 0) };
    let pods = all([ended, running("b", true, 1), failed, running("d", false, 4), elsewhere]);
    let shown = answer(&pods, "", "");
    assert_eq!(names(&shown), ["d", "c", "b", "a-job"]);
    assert_eq!(
        (&shown["counts"], &shown["matched"], &shown["next"]),
        (&json!([1, 1, 0, 1, 1]), &json!(4), &Value::Null)
    );
    assert_eq!(shown["pods"][1], json!(["ns", "c", "a", "Failed", false, 0, 7, "Evicted"]));
    assert_eq!(shown["pods"][2], json!(["ns", "b", "a", "Running", true, 1, 7, ""]));
}

#[test]
fn filter_of_pods_matches_all_words() {
    let waits = PodSeen { phase: Phase::Pending, reason: "ImagePullBackOff", ..running("web-1", false, 0) };
    let other = PodSeen { namespace: "ns-2", node: "a-2", ..running("web-2", true, 0) };
    let pods = all([waits, other, running("db", true, 0)]);
    for (filter, wanted) in [
        ("web", vec!["web-1", "web-2"]),
        ("WEB is:ready", vec!["web-2"]),
        ("imagepull", vec!["web-1"]),
        ("pending", vec!["web-1"]),
        ("namespace=ns", vec!["web-1", "db"]),
        ("node=a", vec!["web-1", "db"]),
        ("node=a-2 ns-2/web", vec!["web-2"]),
        ("is:notready", vec!["web-1"]),
        ("is:", vec![]),
        ("name=db", vec![]),
    ] {
        let shown = answer(&pods, filter, "");
        assert_eq!((names(&shown), &shown["matched"]), (wanted.clone(), &json!(wanted.len())), "{filter}");
        assert_eq!(shown["counts"], json!([1, 0, 0, 2, 0]), "of all pods: {filter}");
    }
}

#[test]
fn answers_follow_each_other_without_a_gap() {
    let made: Vec<(String, bool)> = (0..2 * MOST + SLICE).map(|at| (format!("p{at:05}"), at % 7 > 0)).collect();
    let pods = all(made.iter().map(|(name, ready)| running(name, *ready, 0)));
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let shown = answer(&pods, "", &after);
        assert_eq!(shown["matched"], json!(made.len()));
        assert!(names(&shown).len() <= MOST);
        found.extend(names(&shown).into_iter().map(str::to_owned));
        match shown["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    let of = |wanted: bool| made.iter().filter(move |(_, ready)| *ready == wanted).map(|(name, _)| name.clone());
    assert_eq!(found, of(false).chain(of(true)).collect::<Vec<_>>());
}

#[test]
fn filter_of_many_words_looks_at_fewer_pods_at_a_time() {
    let made: Vec<String> = (0..SLICE / 2).map(|at| format!("p{at:05}")).collect();
    let pods = all(made.iter().map(|name| running(name, true, 0)));
    let slices = |filter: &str| {
        let mut search = Search::new(filter, "").unwrap();
        let more = (0..).take_while(|_| search.look(&pods, |_| true)).count();
        (more, search.matched)
    };
    assert_eq!(slices("running"), (0, made.len()));
    assert_eq!(slices(&"running ".repeat(FILTER.1)), (FILTER.1 / 2, made.len()));
}

#[test]
fn filter_and_place_have_limits() {
    assert!(Search::new(&"x".repeat(FILTER.0), "").is_some());
    assert!(Search::new(&"x".repeat(FILTER.0 + 1), "").is_none());
    assert!(Search::new(&"x ".repeat(FILTER.1 + 1), "").is_none());
    assert!(Search::new("", "ready/ns/p").is_some());
    for bad in ["p", "x/ns/p", "/"] {
        assert!(Search::new("", bad).is_none(), "{bad}");
    }
}

#[test]
fn script_has_the_states_in_the_same_order() {
    let script = include_str!("../../pods.js");
    let places = State::ALL.map(|state| script.find(&format!("\n  {}: {{ words:", state.word())).unwrap());
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn text_of_a_pod_stays_json() {
    let pods = all([PodSeen { reason: "\"}],<b>", ..running("p", false, 0) }]);
    assert_eq!(answer(&pods, "", "")["pods"][0][7], "\"}],<b>");
}
