//! Boards that ask twice: at the same time, with two tokens, and after their Node was deleted or taken over.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::{Board, requests, token};
use crate::support::fixture::{Cluster, TestBridge, unique};
use crate::support::join;

#[tokio::test]
async fn e1_one_board_of_two_with_a_serial_number_needs_no_person() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("twice");
    let token = token(&cluster, &bridge, &prefix, 2, true).await.text();
    let boards = [Board::new("7"), Board::new("7")];
    let asked = futures::join!(boards[0].ask(&bridge, &token), boards[1].ask(&bridge, &token));
    let mut codes = [asked.0.0, asked.1.0];
    codes.sort_unstable();
    assert_eq!(codes, [200, 202], "{asked:?}");
    let again = if asked.0.0 == 202 { &boards[0] } else { &boards[1] };
    assert_eq!(again.ask(&bridge, &token).await.0, 202, "a person decides");
    cluster.nodes().delete(&format!("{prefix}-7"), &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn e2_request_made_with_another_token_is_counted() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("other");
    let manual = token(&cluster, &bridge, &prefix, 2, false).await.text();
    let auto = token(&cluster, &bridge, &prefix, 1, true).await.text();
    let boards = [Board::new("1"), Board::new("2")];
    for board in &boards {
        assert_eq!(board.ask(&bridge, &manual).await.0, 202);
    }
    assert_eq!(boards[0].ask(&bridge, &auto).await.0, 200);
    let (code, refused) = boards[1].ask(&bridge, &auto).await;
    assert_eq!(code, 403, "the token was for one board: {refused}");
    cluster.nodes().delete(&format!("{prefix}-1"), &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn e1_name_is_of_no_board_after_a_join_with_a_token_for_it() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("joined");
    let token = token(&cluster, &bridge, &prefix, 2, true).await.text();
    let node = format!("{prefix}-1");
    assert_eq!(Board::new("1").ask(&bridge, &token).await.0, 200);
    let single = bridge.token(&cluster, &node).await;
    join(bridge.address, &bridge.ca, &single, &node, &format!("system:node:{node}")).await.expect("joined");
    let (code, taken) = Board::new("1").ask(&bridge, &token).await;
    assert_eq!((code, &taken["reason"]), (409, &json!("NameTaken")), "{taken}");
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn certificate_of_a_deleted_node_is_not_given_again() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let prefix = unique("deleted");
    let token = token(&cluster, &bridge, &prefix, 1, true).await.text();
    let (board, node) = (Board::new("1"), format!("{prefix}-1"));
    assert_eq!(board.ask(&bridge, &token).await.0, 200);
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    let (code, refused) = board.ask(&bridge, &token).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("NodeDeleted")), "{refused}");
    // An hour later, or by hand.
    let all = requests(&cluster).list(&ListParams::default()).await.unwrap();
    let own = all.iter().find(|one| one.annotations().get("sampan.dev/node") == Some(&node)).unwrap();
    requests(&cluster).delete(&own.name_any(), &DeleteParams::default()).await.unwrap();
    assert_eq!(board.ask(&bridge, &token).await.0, 200, "another request, and no other use");
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}
