//! The part of a node's answer to its order that goes into the job's status. Pure: a node is trusted about itself,
//! within bounds.

use edge_protocol::message::{ActionStep, ImageStatus, OrderPhase, OrderStatus, WAITING_TURN, waits_for_turn};
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
    // The daemon knows no more of an order whose turn it is not: what was done before stays.
    if !said.phase.is_final() && waits_for_turn(&said.action_flow) {
        if !entry.waits_for_turn() {
            entry.action_flow.truncate(STEPS - 1);
            entry.action_flow.push(ActionStep { action: WAITING_TURN.to_owned(), ..ActionStep::default() });
        }
        return;
    }
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
    fn waiting_for_a_turn_adds_to_what_was_done() {
        let job = job(Kind::Configure, json!({}));
        let mut entry = Entry::new("n", OrderPhase::InProgress, "waits for pull.window");
        let actions = |entry: &Entry| entry.action_flow.iter().map(|step| step.action.clone()).collect::<Vec<_>>();
        let step = |action: &str| json!({"action": action, "status": "True"});
        // As the daemon says it.
        let waits = json!({"actionFlow": [{"action": "WaitingTurn"}]});
        take(&job, &mut entry, read(&json!({"actionFlow": [step("Check")]})).unwrap());
        for _ in 0..2 {
            take(&job, &mut entry, read(&waits).unwrap());
            assert_eq!(actions(&entry), ["Check", "WaitingTurn"]);
            assert!(entry.waits_for_turn() && entry.reason.is_empty() && entry.phase == OrderPhase::InProgress);
        }
        take(&job, &mut entry, read(&json!({"actionFlow": [step("Check")]})).unwrap());
        assert!(actions(&entry) == ["Check"] && !entry.waits_for_turn(), "its turn has come");
        take(&job, &mut entry, read(&json!({"actionFlow": vec![step("x"); STEPS]})).unwrap());
        take(&job, &mut entry, read(&waits).unwrap());
        assert!(entry.action_flow.len() == STEPS && entry.waits_for_turn());
        let end = json!({"phase": "Failure", "actionFlow": [{"action": "WaitingTurn"}]});
        take(&job, &mut entry, read(&end).unwrap());
        assert_eq!((entry.phase, entry.action_flow.len()), (OrderPhase::Failure, 1));
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
