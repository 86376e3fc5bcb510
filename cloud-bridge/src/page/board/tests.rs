use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::pod::tests::running;
use super::*;

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

fn node(name: &str, ready: &str) -> PageNode {
    let node = json!({"metadata": {"name": name, "labels": {"x": "<img onerror=alert(1)>"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"kubeletVersion": "v1"}}});
    serde_json::from_value(node).unwrap()
}

fn up(second: u64) -> LinkView {
    LinkView { since: Some(at(second)), last_seen: Some(at(second)), elsewhere: false }
}

fn down(second: u64) -> LinkView {
    LinkView { since: None, last_seen: Some(at(second)), elsewhere: false }
}

fn look(board: &mut Board, links: &[(&str, LinkView)], now: SystemTime) {
    board.look();
    links.iter().for_each(|(name, link)| board.link(name, *link, now));
    board.looked(now);
}

/// Name, link, since, ready pods, wanted pods of each changed row; names of removed ones.
fn taken(board: &mut Board) -> (Vec<Value>, Vec<String>) {
    let text = board.take(at(0)).unwrap_or_else(|| r#"{"rows":[]}"#.to_owned());
    let all: Value = serde_json::from_str(&text).unwrap();
    let rows = all["rows"].as_array().unwrap().iter();
    let mut rows: Vec<Value> = rows.map(|row| json!([row[0], row[1], row[2], row[4], row[5]])).collect();
    rows.sort_by_key(ToString::to_string);
    let gone = all["gone"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned());
    (rows, gone.collect())
}

#[test]
fn only_what_has_changed_is_told() {
    let mut board = Board::new(false);
    board.node(&node("a", "True"), at(1));
    board.node(&node("b", "True"), at(1));
    assert!(board.has("a") && !board.has("c"));
    look(&mut board, &[("a", up(2))], at(2));
    assert_eq!(taken(&mut board).0, [json!(["a", 1, 2, 0, 0]), json!(["b", 0, 0, 0, 0])]);
    board.node(&node("a", "True"), at(3));
    look(&mut board, &[("a", LinkView { last_seen: Some(at(9)), ..up(2) })], at(9));
    assert_eq!(board.take(at(9)), None, "a heartbeat is no change");
    board.pod(running("1", true, 0), at(10));
    assert_eq!(taken(&mut board).0, [json!(["a", 1, 2, 1, 1])]);
    look(&mut board, &[("a", down(11))], at(12));
    assert_eq!(taken(&mut board).0, [json!(["a", 0, 11, 1, 1])]);
    board.node_gone("b");
    assert_eq!(taken(&mut board), (vec![], vec!["b".to_owned()]));
    board.reachable(false);
    assert!(board.take(at(0)).unwrap().contains(r#""api":false"#));
    assert_eq!(board.take(at(0)), None);
}

#[test]
fn a_node_is_shown_as_long_as_its_object_or_its_link_is_there() {
    let mut board = Board::new(false);
    look(&mut board, &[("a", up(2))], at(2));
    assert!(board.nodes.contains_key("a"), "before it has registered");
    board.node(&node("a", "True"), at(3));
    look(&mut board, &[], at(4));
    assert_eq!(taken(&mut board).0, [json!(["a", 0, 0, 0, 0])]);
    board.nodes_listed(&HashSet::from(["b".to_owned()]));
    assert_eq!(taken(&mut board), (vec![], vec!["a".to_owned()]));
    board.node(&node("a", "True"), at(5));
    assert_eq!(taken(&mut board), (vec![json!(["a", 0, 0, 0, 0])], vec![]), "it is back");
}

#[test]
fn nodes_of_other_bridges_are_called_so() {
    let mut board = Board::new(true);
    board.node(&node("a", "True"), at(1));
    board.node(&node("b", "Unknown"), at(1));
    board.node(&node("c", "True"), at(1));
    look(&mut board, &[("c", LinkView { elsewhere: true, ..down(1) })], at(1));
    assert_eq!(taken(&mut board).0, [json!(["a", 2, 0, 0, 0]), json!(["b", 0, 0, 0, 0]), json!(["c", 2, 0, 0, 0])]);
}

#[test]
fn the_timeline_has_what_was_seen() {
    let mut board = Board::new(false);
    board.node(&node("a", "True"), at(1));
    look(&mut board, &[("a", up(2))], at(3));
    board.pod(running("1", true, 5), at(10));
    board.pod(running("1", false, 7), at(20));
    look(&mut board, &[("a", down(30))], at(31));
    look(&mut board, &[("a", up(40))], at(41));
    look(&mut board, &[("a", up(50))], at(51));
    board.node(&node("a", "False"), at(60));
    let seen: Vec<_> = board.timeline("a").iter().map(|change| (change.0, change.1, change.2)).collect();
    let (link, ready, pods, restarts) = (0, 1, 2, 3);
    assert_eq!(
        seen,
        [
            (1, ready, 1),
            (1, link, 0),
            (2, link, 1),
            (10, pods, 1 << 16 | 1),
            (20, restarts, 2),
            (20, pods, 1),
            (31, link, 0),
            (40, link, 1),
            (50, link, 0),
            (50, link, 1),
            (60, ready, 2),
        ],
        "also a connection that was another one between two looks"
    );
}

#[test]
fn text_of_the_cluster_stays_text() {
    let mut board = Board::new(false);
    board.node(&node("a", "True"), at(1));
    let all: Value = serde_json::from_str(&board.part(&mut board.names(""), usize::MAX, at(1))).unwrap();
    assert_eq!(all["rows"][0][14], "x=<img onerror=alert(1)>");
}

#[test]
fn rows_come_by_name_in_parts_of_bounded_size() {
    let mut board = Board::new(false);
    let names: Vec<String> = (0..100).map(|number| format!("edge-{number:03}")).collect();
    names.iter().for_each(|name| board.node(&node(name, "True"), at(1)));
    let (mut left, mut found, mut parts) = (board.names("edge-009"), Vec::new(), 0);
    while !left.is_empty() {
        let text = board.part(&mut left, 2000, at(1));
        assert!(text.len() < 3000, "{text}");
        let part: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(part["more"] == true, !left.is_empty());
        found.extend(part["rows"].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap().to_owned()));
        parts += 1;
    }
    assert_eq!(found, names[10..]);
    assert!(parts > 3, "{parts}");
    assert!(board.part(&mut Vec::new(), 2000, at(1)).contains("\"rows\":[]"));
}

/// Cost of ten thousand nodes. `--nocapture` shows it.
#[test]
fn ten_thousand_nodes_are_one_text() {
    let mut board = Board::new(false);
    let names: Vec<String> = (0..10_000).map(|number| format!("edge-{number:05}")).collect();
    names.iter().for_each(|name| board.node(&node(name, "True"), at(1)));
    board.skip();
    let begun = std::time::Instant::now();
    board.look();
    names.iter().for_each(|name| board.link(name, up(2), at(2)));
    board.looked(at(2));
    let looked = begun.elapsed();
    let text = board.take(at(3)).unwrap();
    let told = begun.elapsed() - looked;
    board.look();
    names.iter().for_each(|name| board.link(name, up(2), at(4)));
    board.looked(at(4));
    let quiet = begun.elapsed() - looked - told;
    assert_eq!(board.take(at(5)), None);
    let rows: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows["rows"].as_array().unwrap().len(), names.len());
    assert!(text.len() < 2 << 20, "{} bytes", text.len());
    let print =
        format!("10,000 links that are new {looked:?}, their {} bytes {told:?}; a quiet look {quiet:?}\n", text.len());
    let _ = std::io::Write::write_all(&mut std::io::stderr(), print.as_bytes());
}
