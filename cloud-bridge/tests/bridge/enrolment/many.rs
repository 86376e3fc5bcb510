//! Many boards at once.

use std::net::Ipv4Addr;

use futures::future::join_all;
use serde_json::Value;

use super::{Board, decide, token};
use crate::support::fixture::{Cluster, TestBridge, unique};

/// Boards of each token, eight behind an address.
const BOARDS: u8 = 40;

async fn ask(bridge: &TestBridge, boards: &[Board], token: &str) -> Vec<(u16, Value)> {
    join_all(boards.iter().map(|board| board.ask(bridge, token))).await
}

#[tokio::test]
async fn e5_boards_that_ask_at_once_all_enrol() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let tokens = [
        token(&cluster, &bridge, &unique("manual"), BOARDS.into(), false).await.text(),
        token(&cluster, &bridge, &unique("auto"), BOARDS.into(), true).await.text(),
    ];
    let boards = |first: u8| -> Vec<Board> {
        let address = |number: u8| Ipv4Addr::new(127, 0, first, 1 + number / 8);
        (1..=BOARDS).map(|number| Board { address: address(number), ..Board::new(&number.to_string()) }).collect()
    };
    let [manual, auto] = [boards(1), boards(2)];
    let (waiting, joined) = futures::join!(ask(&bridge, &manual, &tokens[0]), ask(&bridge, &auto, &tokens[1]));
    assert!(joined.iter().all(|(code, _)| *code == 200), "{joined:?}");
    for (code, waits) in &waiting {
        assert_eq!(*code, 202, "{waits}");
        decide(&cluster, waits, "Approved").await;
    }
    let joined = ask(&bridge, &manual, &tokens[0]).await;
    assert!(joined.iter().all(|(code, _)| *code == 200), "{joined:?}");
}
