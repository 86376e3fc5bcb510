//! Decides whether the status of a node contains anything that the API does not have. After a restart of the bridge all
//! nodes report their status again: without this check, thousands of writes and watch events without news. Pure.

use jiff::{SignedDuration, Timestamp};
use sampan_json::SetField;
use serde_json::Value;

/// Interval at which an unchanged status is written (K8s `nodeStatusReportFrequency`).
const FRESH: SignedDuration = SignedDuration::from_mins(5);

/// Whether `found` already equals the result of the patch `status`, and was written recently.
pub(super) fn is_known(found: &Value, status: &Value, now: Timestamp) -> bool {
    let Some(fields) = status.as_object() else { return false };
    fields.iter().all(|(name, value)| match (name.as_str(), value) {
        ("conditions", Value::Array(wanted)) => {
            !wanted.is_empty() && wanted.iter().all(|condition| is_held(&found["conditions"], condition, now))
        }
        ("addresses", Value::Array(wanted)) => {
            let plain = wanted.iter().filter(|address| address.get("$patch").is_none());
            found["addresses"].as_array().is_some_and(|found| found.iter().eq(plain))
        }
        // An API server omits empty fields.
        (_, Value::Array(wanted)) if wanted.is_empty() && found[name].is_null() => true,
        _ => found[name] == *value,
    })
}

fn is_held(found: &Value, wanted: &Value, now: Timestamp) -> bool {
    let same = |found: &&Value| found["type"] == wanted["type"];
    let Some(found) = found.as_array().and_then(|all| all.iter().find(same)) else { return false };
    let told = found["lastHeartbeatTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let age = told.map(|told| now.duration_since(told));
    // A time in the future comes from a clock that was ahead.
    if !age.is_some_and(|age| (SignedDuration::ZERO..FRESH).contains(&age)) {
        return false;
    }
    let mut as_wanted = found.clone();
    as_wanted.set("lastHeartbeatTime", wanted["lastHeartbeatTime"].clone());
    as_wanted == *wanted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(ready: &str, heartbeat: &str, address: &str) -> Value {
        json!({
            "capacity": {"cpu": "2"},
            "conditions": [
                {"type": "DiskPressure", "status": "False", "reason": "r", "lastHeartbeatTime": heartbeat},
                {"type": "Ready", "status": ready, "reason": "r", "lastHeartbeatTime": heartbeat}],
            "addresses": [{"type": "InternalIP", "address": address}],
        })
    }

    #[test]
    fn what_the_api_has_already_is_no_news_for_a_while() {
        let now: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
        let mut wanted = status("True", "2026-03-01T10:00:00Z", "10.0.0.1");
        wanted["addresses"].as_array_mut().unwrap().insert(0, json!({"$patch": "replace"}));
        wanted["declaredFeatures"] = json!([]);
        let found = |ready, heartbeat| {
            let mut found = status(ready, heartbeat, "10.0.0.1");
            // Other components write there too.
            found["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 0}});
            found["conditions"].as_array_mut().unwrap().push(json!({"type": "NetworkUnavailable", "status": "False"}));
            found
        };
        let recent = "2026-03-01T09:56:00Z";
        assert!(is_known(&found("True", recent), &wanted, now));
        assert!(!is_known(&found("Unknown", recent), &wanted, now), "somebody took it for dead");
        assert!(!is_known(&found("True", "2026-03-01T09:54:59Z"), &wanted, now), "long ago");
        assert!(!is_known(&found("True", "2027-01-01T00:00:00Z"), &wanted, now), "of a clock that was ahead");
        assert!(!is_known(&status("True", recent, "10.0.0.2"), &wanted, now), "another address");
        for odd in [json!(null), json!([]), json!({"conditions": 1}), json!({"conditions": [1]}), json!({})] {
            assert!(!is_known(&odd, &wanted, now), "{odd}");
            assert!(!is_known(&found("True", recent), &json!({"conditions": odd}), now), "{odd}");
        }
        let mut more = wanted.clone();
        more["capacity"]["memory"] = "1Gi".into();
        assert!(!is_known(&found("True", recent), &more, now));
    }
}
