//! Limits of the gate for unauthenticated peers.

use std::io;

use apimachinery::user::UserInfo;
use futures::FutureExt;

use super::*;
use crate::accept::{Arrival, Busy, client};

const GRACE: Duration = Duration::from_millis(100);
const ARRIVAL: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_millis(300);

fn from(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

fn gate() -> Arc<Gate> {
    Gate::with(Patience { grace: GRACE, arrival: ARRIVAL, idle: IDLE, ..Patience::default() })
}

async fn never() -> io::Result<()> {
    std::future::pending().await
}

#[tokio::test]
async fn who_lets_us_wait_is_out_after_a_while_whatever_is_done_in_between() {
    let gate = gate();
    let arrival = gate.admit(from(1)).unwrap();
    let watched = Arc::clone(&arrival);
    let watching = tokio::spawn(async move { watched.within(never()).await });
    tokio::time::sleep(ARRIVAL / 2).await;
    let work = arrival.work();
    tokio::time::sleep(ARRIVAL * 2).await;
    assert!(!watching.is_finished(), "our own time is not counted");
    drop(work);
    let rest = tokio::time::Instant::now();
    assert_eq!(watching.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(rest.elapsed() < ARRIVAL, "the first wait is: {:?}", rest.elapsed());
    drop(arrival);
    assert_eq!((gate.arriving.taken(), gate.slow.taken(), gate.sources().len()), (0, 0, 0));
}

#[tokio::test]
async fn busy_connection_is_out_in_time_all_the_same() {
    let gate = Gate::with(Patience { grace: GRACE, arrival: GRACE * 2, ..Patience::default() });
    let arrival = gate.admit(from(1)).unwrap();
    // As a socket that always has data: each step of the task is used up.
    let busy = std::future::poll_fn(|context| {
        while let std::task::Poll::Ready(one) = tokio::task::coop::poll_proceed(context) {
            one.made_progress();
        }
        context.waker().wake_by_ref();
        std::task::Poll::<io::Result<()>>::Pending
    });
    let over = tokio::time::timeout(GRACE * 50, arrival.within(busy)).await;
    assert_eq!(over.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn slow_ones_keep_nobody_from_a_turn() {
    let gate = gate();
    let slow: Vec<Arc<Arrival>> = (0..TURNS.0).map(|_| gate.admit(from(1)).unwrap()).collect();
    let mut tasks = Vec::new();
    for arrival in &slow {
        let arrival = Arc::clone(arrival);
        tasks.push(tokio::spawn(async move {
            arrival.turn().await;
            arrival.within(never()).await
        }));
    }
    while gate.turns.available_permits() > TURNS.0 - TURNS.1 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(GRACE / 10).await;
    assert_eq!(gate.turns.available_permits(), TURNS.0 - TURNS.1, "one address has its share");
    let other = gate.admit(from(2)).unwrap();
    assert!(other.turn().now_or_never().is_some(), "another address need not wait");
    let (neighbour, asked) = (gate.admit(from(1)).unwrap(), tokio::time::Instant::now());
    neighbour.turn().await;
    // All permits of the address were used twice before; the host may be busy.
    assert!(asked.elapsed() < GRACE * 10, "{:?}", asked.elapsed());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn refused_client_gives_its_turn_back_at_once() {
    let gate = gate();
    let arrival = gate.admit(from(1)).unwrap();
    arrival.turn().await;
    let client = client::Client::new(Arc::clone(&gate), from(1), arrival);
    assert_eq!(gate.turns.available_permits(), TURNS.0 - 1);
    client.end();
    assert_eq!(gate.turns.available_permits(), TURNS.0);
    assert_eq!(gate.arriving.taken(), 1, "it still arrives");
}

#[tokio::test]
async fn of_too_many_slow_ones_of_an_address_the_slowest_is_out() {
    let gate = gate();
    let mut tasks = Vec::new();
    for _ in 0..=SLOW.1 {
        let arrival = gate.admit(from(1)).unwrap();
        tasks.push(tokio::spawn(async move { arrival.within(never()).await }));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let other = gate.admit(from(2)).unwrap();
    let other = tokio::spawn(async move { other.within(never()).await });
    tokio::time::sleep(GRACE * 3).await;
    let over: Vec<bool> = tasks.iter().map(tokio::task::JoinHandle::is_finished).collect();
    assert!(over[0] && over[1..].iter().all(|over| !over), "one of them, the first");
    assert!(!other.is_finished());
    assert_eq!(gate.slow.taken(), SLOW.1 + 1);
}

#[tokio::test]
async fn an_address_has_its_share_of_arrivals_and_the_proven_are_none() {
    let gate = gate();
    let all: Vec<_> = (0..ARRIVING.1).map(|_| gate.admit(from(1)).unwrap()).collect();
    assert!(gate.admit(from(1)).is_none() && gate.admit(from(2)).is_some());
    all[7].proven();
    assert!(gate.admit(from(1)).is_some());
    let proven = Arc::clone(&all[7]);
    let served = proven.within(async {
        tokio::time::sleep(ARRIVAL * 2).await;
        Ok(())
    });
    served.await.unwrap();
}

fn user(number: usize) -> Flow {
    Flow::of(&UserInfo::new(&format!("user-{number}"), [""; 0]))
}

#[test]
fn user_has_few_connections_whatever_the_address() {
    let gate = gate();
    let kept: Vec<Arc<Kept>> = (1..=u8::MAX).filter_map(|address| gate.keep(from(address), &user(0))).collect();
    let _busy: Vec<Busy> = kept.iter().map(Kept::busy).collect();
    assert_eq!(kept.len(), OF_USERS.1);
    assert!(gate.keep(from(1), &user(1)).is_some() && gate.keep(from(1), &Flow::unlimited()).is_some());
}

#[test]
fn administrators_find_a_place_among_busy_users() {
    let gate = gate();
    let keep = |n: usize| gate.keep([192, 0, 2, u8::try_from(n % 4).unwrap()].into(), &user(n));
    let kept: Vec<Arc<Kept>> = (0..KEPT.0).filter_map(keep).collect();
    let _busy: Vec<Busy> = kept.iter().map(Kept::busy).collect();
    assert!(kept.len() == KEPT.0 && keep(1).is_none());
    assert!(gate.keep(from(1), &Flow::unlimited()).is_some());
    assert!(gate.keep(from(1), &Flow::of(&UserInfo::new("system:kube-scheduler", [""; 0]))).is_some());
}

#[tokio::test]
async fn what_is_kept_ends_when_it_is_idle_or_another_needs_its_place() {
    let gate = gate();
    let all: Vec<Arc<Kept>> = (0..KEPT.1).map(|n| gate.keep(from(1), &user(n)).unwrap()).collect();
    let keep = |address| gate.keep(from(address), &user(KEPT.1));
    assert!(keep(1).is_none(), "nobody has been asked anything yet");
    let busy: Vec<Busy> = all.iter().map(Kept::busy).collect();
    assert!(keep(1).is_none() && keep(2).is_some());
    let (mut busy, ended) = (busy, Arc::clone(&all[3]));
    let ending = tokio::spawn(async move { ended.over().await });
    drop(busy.remove(3));
    let newer = keep(1).unwrap();
    ending.await.unwrap();
    let request = newer.busy();
    let over = newer.over();
    tokio::pin!(over);
    assert!(tokio::time::timeout(IDLE * 3, &mut over).await.is_err(), "busy is not idle");
    drop(request);
    over.await;
}
