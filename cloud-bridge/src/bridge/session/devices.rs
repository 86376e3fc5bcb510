//! Writes a batch of a node's reports of devices, several at a time, and each until it is in the API or refused.
//! Meanwhile the node sends no other batch, and keeps only the newest values: a slow API costs freshness, never memory.

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::{DeviceRefusal, DeviceReport};
use futures::{StreamExt, stream};
use sampan_log::printable::printable;

use crate::bridge::devices::write::{Ended, Writer};
use crate::bridge::pauses::Pauses;
use crate::bridge::reports::Reports;
use crate::bridge::requests::Requests;
use crate::bridge::shared::Shared;

/// Limit of concurrent reports of one node.
const AT_ONCE: usize = 4;
/// Pause after a failed attempt, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));
/// Number of attempts after an obstacle that may disappear: a quarter of a minute in total.
const OBSTACLES: u32 = 6;

/// A newer connection of the node exists elsewhere.
struct Fenced;

/// Writes all of them. Returns the refused ones, or an error if a newer connection of the node is at another bridge.
pub(super) async fn write(
    shared: Arc<Shared>,
    reports: Arc<Reports>,
    node: String,
    session: u64,
    devices: Vec<DeviceReport>,
) -> Option<Vec<DeviceRefusal>> {
    let devices_watch = loop {
        if let Some(present) = shared.devices.watch.get() {
            break present;
        }
        // The node has just connected, and its group is not known yet.
        tokio::time::sleep(AGAIN.0).await;
    };
    let writer = Writer {
        requests: Requests::new(shared.clients.own().clone()),
        devices: devices_watch,
        turns: Arc::clone(&shared.devices.turns),
        gate: Arc::clone(&shared.writes),
        node,
        session,
    };
    lead(&writer, &reports).await.ok()?;
    let each = stream::iter(devices).map(|report| one(&writer, &reports, report));
    let all: Vec<Result<Vec<DeviceRefusal>, Fenced>> = each.buffer_unordered(AT_ONCE).collect().await;
    let all: Result<Vec<_>, Fenced> = all.into_iter().collect();
    all.ok().map(|all| all.into_iter().flatten().collect())
}

async fn one(writer: &Writer, reports: &Reports, report: DeviceReport) -> Result<Vec<DeviceRefusal>, Fenced> {
    let what = printable(format_args!("{}/{}", report.namespace, report.name)).to_string();
    let (mut pauses, mut obstacles) = (Pauses::new(AGAIN), 0);
    let refused = loop {
        let why = match judged(writer.write(&report).await, &mut obstacles) {
            Ok(refused) => break refused,
            Err(why) => why,
        };
        log::debug!("node {}: Device {what}: will be tried again: {}", writer.node, printable(why));
        pauses.wait().await;
        // Time has passed: an old report must not replace one of a newer connection.
        lead(writer, reports).await?;
    };
    Ok(refused.into_iter().map(|reason| DeviceRefusal { uid: report.uid.clone(), reason }).collect())
}

/// What is refused permanently, or the reason for another attempt. `obstacles`: the number of those before.
fn judged(ended: Ended, obstacles: &mut u32) -> Result<Vec<String>, String> {
    match ended {
        Ended::Written(refused) => Ok(refused),
        Ended::Refused(why) => Ok(vec![why]),
        Ended::Obstacle(why) if *obstacles == OBSTACLES => Ok(vec![why]),
        Ended::Obstacle(why) => {
            *obstacles += 1;
            Err(why)
        }
        Ended::Trouble(why) => Err(why),
    }
}

/// Repeats the check until the API answers.
async fn lead(writer: &Writer, reports: &Reports) -> Result<(), Fenced> {
    let mut pauses = Pauses::new(AGAIN);
    loop {
        match reports.leads().await {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(Fenced),
            Err(why) => log::warn!("node {}: asking whose it is: {}", writer.node, printable(why)),
        }
        pauses.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_obstacle_is_reported_and_an_absent_api_awaited() {
        let (why, mut obstacles) = (|| "w".to_owned(), 0);
        for _ in 0..OBSTACLES {
            assert_eq!(judged(Ended::Obstacle(why()), &mut obstacles), Err(why()));
            assert_eq!(judged(Ended::Trouble(why()), &mut obstacles), Err(why()));
        }
        assert_eq!(judged(Ended::Obstacle(why()), &mut obstacles), Ok(vec![why()]));
        assert_eq!(judged(Ended::Trouble(why()), &mut obstacles), Err(why()));
        assert_eq!(judged(Ended::Refused(why()), &mut obstacles), Ok(vec![why()]));
        assert_eq!(judged(Ended::Written(Vec::new()), &mut obstacles), Ok(Vec::new()));
    }
}
