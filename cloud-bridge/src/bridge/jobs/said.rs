//! The part of a node's answer to its order that goes into the job's status. Pure: a node is trusted about itself,
//! within bounds.

use edge_protocol::message::{ActionStep, ImageStatus, OrderPhase, OrderStatus};
use serde::Deserialize;
use serde_json::Value;

use super::status::{DELETED, Entry, UNTIL};
use super::view::Job;

/// Actions of one node, the last ones.
const STEPS: usize = 16;
/// Bytes of a reason, of a name or a version, of a time.
const REASON: usize = 1024;
const NAME: usize = 128;
const TIME: usize = 40;

/// What a node says of a job's order.
///
/// # Errors
/// It is nonsense.
pub(super) fn read(status: &Value) -> Result<OrderStatus, String> {
    // A list of the same values would be read as one, too.
    if !status.is_object() {
        return Err("that is no status of an order".to_owned());
    }
    OrderStatus::deserialize(status).map_err(|error| format!("that is no status of an order: {error}"))
}

/// The node's part of the job's status after that. What has its verdict keeps it.
pub(super) fn take(job: &Job, entry: &mut Entry, said: OrderStatus) {
    if !entry.is_under_way() {
        return;
    }
    entry.phase = if said.phase.is_final() { said.phase } else { OrderPhase::InProgress };
    let mut reason = cut(&said.reason, REASON).to_owned();
    // Those are not a node's to say: they do not count as failures.
    if reason.ends_with(UNTIL) || reason == DELETED {
        reason.push('.');
    }
    entry.reason = reason.into();
    let skipped = said.action_flow.len().saturating_sub(STEPS);
    let step = |step: ActionStep| ActionStep {
        action: cut(&step.action, NAME).to_owned(),
        status: step.status,
        reason: cut(&step.reason, REASON).to_owned(),
        time: cut(&step.time, TIME).to_owned(),
    };
    entry.action_flow = said.action_flow.into_iter().skip(skipped).map(step).collect();
    entry.current_version = cut(&said.current_version, NAME).into();
    entry.historic_version = cut(&said.historic_version, NAME).into();
    let image = |name: &str| {
        let said = said.image_status.iter().find(|said| said.image == name)?;
        Some(ImageStatus { image: name.to_owned(), status: said.status, reason: cut(&said.reason, REASON).to_owned() })
    };
    entry.image_status = job.images().filter_map(image).collect();
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::view::Kind;
    use super::super::view::tests::job;
    use super::*;

    #[test]
    fn a_node_says_how_far_it_is_and_no_more_than_that() {
        let job = job(Kind::PrePull, json!({"images": ["a:1", "b:2"]}));
        let mut entry = Entry::new("n", OrderPhase::InProgress, "");
        let step =
            json!({"action": "x".repeat(999), "status": "True", "reason": "ä".repeat(9999), "time": "t".repeat(99)});
        let said = json!({"phase": "Failure", "reason": "offline until the deadline", "actionFlow": vec![step; 99],
            "currentVersion": "v".repeat(9999), "nodeName": "another", "imageStatus": [
            {"image": "z", "status": "True"}, {"image": "b:2", "status": "False", "reason": "no"}, {"image": "b:2"}]});
        take(&job, &mut entry, read(&said).unwrap());
        assert_eq!((&*entry.node_name, entry.phase), ("n", OrderPhase::Failure));
        assert!(entry.has_failed(), "{}", entry.reason);
        assert_eq!(entry.image_status, [ImageStatus { image: "b:2".into(), status: false, reason: "no".into() }]);
        assert!(entry.action_flow.len() == STEPS && entry.action_flow[0].reason.len() <= REASON);
        let before = entry.clone();
        take(&job, &mut entry, OrderStatus { phase: OrderPhase::Successful, ..OrderStatus::default() });
        assert_eq!(entry, before, "a verdict stays");
        let mut pending = Entry::new("n", OrderPhase::Pending, "");
        take(&job, &mut pending, OrderStatus { phase: OrderPhase::Successful, ..OrderStatus::default() });
        assert_eq!(pending.phase, OrderPhase::Pending, "it has no order");
    }

    #[test]
    fn whoever_has_its_order_is_under_way() {
        let job = job(Kind::Configure, json!({}));
        for phase in ["Pending", "Dance", "InProgress"] {
            let mut entry = Entry::new("n", OrderPhase::Unknown, "silent");
            take(&job, &mut entry, read(&json!({"phase": phase})).unwrap());
            assert_eq!((entry.phase, &*entry.reason), (OrderPhase::InProgress, ""));
        }
        assert!(read(&json!({"phase": 3})).is_err() && read(&json!(["x"])).is_err());
    }
}
